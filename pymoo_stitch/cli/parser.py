"""The options of every command."""

import argparse
import math
import sys
from typing import Any, NoReturn

from ..algorithms import ALGORITHMS
from ..util.words import did_you_mean


class _Parser(argparse.ArgumentParser):
    """Refuses unknown options and commands, with the nearest known one and the usage of this command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self._given = sys.argv[1:] if args is None else list(args)
        namespace, unknown = super().parse_known_args(self._given, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        options = self._option_string_actions
        words = [word.partition("=")[0] for word in self._given if word.startswith("--")]
        hints = [did_you_mean(word, options) for word in words if not any(name.startswith(word) for name in options)]
        if "invalid choice" in message:
            commands = next(action.choices for action in self._actions if action.dest == "command")
            hints.append(did_you_mean(self._given[0], commands))
        super().error(f"{message}.{''.join(hints)}" if any(hints) else message)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pymoo-stitch",
        description="Join trained networks by stitches or in cascades, and search for trade-offs of cost and error.",
        epilog="Begin with: pymoo-stitch demo",
    )
    commands = parser.add_subparsers(dest="command", metavar="command")

    demo = _add(
        commands,
        "demo",
        "everything end to end on handwritten digits, in about two minutes",
        "pymoo-stitch demo --output demo",
    )
    demo.add_argument(
        "--output", default="pymoo-stitch-demo", metavar="DIR", help="folder to write to (default: %(default)s)"
    )
    demo.add_argument(
        "--budget", type=_count, default=1_000, help="evaluations of each algorithm (default: %(default)s)"
    )
    demo.add_argument("--seed", type=_seed, default=1, help="of the searches (default: %(default)s)")
    demo.add_argument("--workers", type=_count, default=2, help="workers of the local cluster (default: %(default)s)")

    info = _add(
        commands,
        "info",
        "list what is available, or show what is in a file",
        "pymoo-stitch info",
        "pymoo-stitch info cifar10",
        "pymoo-stitch info run.sqlite",
    )
    info.add_argument("what", nargs="?", help="a problem, a supernet, a journal or an exported network")

    build = _add(
        commands,
        "build",
        "make a supernet: import and match networks, fit the stitches",
        "pymoo-stitch build digits --output digits.safetensors",
    )
    _add_problem(build)
    build.add_argument("--output", required=True, metavar="FILE", help="where to save the supernet")

    check = _add(
        commands,
        "check",
        "ask every worker of a cluster, before a search, whether it can do it and how fast",
        "pymoo-stitch check digits --workers 2",
        "pymoo-stitch check my_pair.py --option data=photos --scheduler tcp://head:8786 --budget 200000",
    )
    _add_problem(check)
    check.add_argument(
        "--budget", type=_count, default=2_000, metavar="N", help="whose time is estimated (default: %(default)s)"
    )
    check.add_argument(
        "--tolerance",
        type=_amount,
        default=0.001,
        metavar="ERROR",
        help="by how much workers' errors of one network may differ (default: %(default)s)",
    )
    check.add_argument("--seed", type=_seed, default=1, help="of the networks that are tried (default: %(default)s)")
    _add_runner(check, required=True)

    search = _add(
        commands,
        "search",
        "search a problem; the same command again goes on where it was",
        "pymoo-stitch search digits --budget 500",
        "pymoo-stitch search cifar10 --option data=cifar10 --algorithm NSGA-II --workers 2 --output run.sqlite",
    )
    _add_problem(search)
    search.add_argument(
        "--algorithm",
        type=_algorithm,
        default="async-NSGA-II",
        metavar="NAME",
        help=f"{', '.join(ALGORITHMS)} (default: %(default)s)",
    )
    search.add_argument(
        "--pop-size", type=_count, metavar="N", help="population size (default: by the algorithm and the budget)"
    )
    search.add_argument("--seed", type=_seed, default=1, help="(default: %(default)s)")
    search.add_argument(
        "--output", metavar="FILE", help="the run's journal (default: PROBLEM-ALGORITHM-seedSEED.sqlite)"
    )
    search.add_argument(
        "--memo",
        nargs="+",
        default=[],
        metavar="FILE",
        help="journals whose results are used instead of computing them again",
    )
    _add_budget(search, "evaluations (default: 2000, or no limit if --time is given)")
    _add_runner(search)

    resume = _add(
        commands,
        "resume",
        "go on with a run that was interrupted, or with a finished one and a larger budget",
        "pymoo-stitch resume run.sqlite",
        "pymoo-stitch resume run.sqlite --budget 5000 --workers 2",
    )
    resume.add_argument("journal", help="the run's journal")
    _add_origin(resume)
    _add_budget(resume, "evaluations of the whole run (default: as planned)")
    _add_runner(resume)

    report = _add(
        commands,
        "report",
        "a page, plots and tables of one run or several, evaluated on test data",
        "pymoo-stitch report lk-gomea.sqlite nsga2.sqlite --output report",
        "pymoo-stitch report run.sqlite --scheduler tcp://head:8786",
    )
    report.add_argument("journals", nargs="+", metavar="journal", help="runs of one problem")
    report.add_argument("--output", default="report", metavar="DIR", help="folder to write to (default: %(default)s)")
    _add_cascades(report)
    _add_origin(report)
    _add_runner(report)
    _add_choice(report)

    watch = _add(
        commands,
        "watch",
        "a page of runs in progress, served to a browser on this computer",
        "pymoo-stitch watch run.sqlite",
        "pymoo-stitch watch comparison/*.sqlite --port 8000",
    )
    watch.add_argument("journals", nargs="+", metavar="journal", help="runs of one problem; they are only read")
    watch.add_argument("--port", type=_port, default=0, help="(default: a free one)")
    watch.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the interface to serve on; unless it is this computer's own, whoever reaches it can read the page "
        "(default: %(default)s)",
    )

    export = _add(
        commands,
        "export",
        "a network from the front as a file that needs torch alone",
        "pymoo-stitch export run.sqlite --output network.pt2",
        "pymoo-stitch export run.sqlite --at-most 20e6 --retrain 4096 --recalibrate 256 --output network.onnx",
    )
    export.add_argument("journals", nargs="+", metavar="journal", help="runs of one problem")
    export.add_argument("--output", required=True, metavar="FILE", help=".pt2 for torch.export, .onnx for ONNX")
    export.add_argument(
        "--retrain",
        type=_count,
        metavar="SAMPLES",
        help="first train its stitches on this many images, some of them shown several times",
    )
    export.add_argument(
        "--recalibrate",
        type=_count,
        metavar="SAMPLES",
        help="after --retrain, compute the statistics of the batch norms after its stitches again on this many images; "
        "kept only if it is better on selection images",
    )
    export.add_argument(
        "--report",
        default="report",
        metavar="DIR",
        help="the folder that `report` wrote, whose cascades.json is searched first for --key (default: %(default)s)",
    )
    _add_cascades(export)
    _add_origin(export)
    _add_runner(export)
    _add_choice(export)

    compare = _add(
        commands,
        "compare",
        "several algorithms, several seeds, the same budget",
        "pymoo-stitch compare digits --algorithms async-NSGA-II NSGA-II --seeds 5 --budget 500 --output comparison",
        "pymoo-stitch compare digits --algorithms GOMEA --pop-sizes 32 64 128 --seeds 1",
    )
    _add_problem(compare)
    compare.add_argument(
        "--algorithms", nargs="+", type=_algorithm, default=list(ALGORITHMS), metavar="NAME", help="(default: all)"
    )
    compare.add_argument("--pop-sizes", nargs="+", type=_count, metavar="N", help="each algorithm with each of these")
    compare.add_argument("--seeds", type=_count, default=5, help="how many (default: %(default)s)")
    compare.add_argument("--seed", type=_seed, default=1, help="the first one (default: %(default)s)")
    compare.add_argument(
        "--output", default="comparison", metavar="DIR", help="folder to write to (default: %(default)s)"
    )
    _add_budget(compare, "evaluations of each run (default: 1000, or no limit if --time is given)")
    _add_runner(compare)
    return parser


def _add(commands: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n".join(["examples:" if len(examples) > 1 else "example:", *(f"  {example}" for example in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser


def _add_problem(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "problem", help="its name (`pymoo-stitch info` lists all), or a .py file with a function problem()"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the problem (`pymoo-stitch info PROBLEM` lists them)",
    )


def _add_origin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", metavar="FILE", help="the .py file of the problem, if it has one; the file is run")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the problem that has changed"
    )


def _add_cascades(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--one-stitch",
        action="store_true",
        help="try all networks with one stitch as stages of cascades, besides those that were found: takes minutes",
    )
    parser.add_argument(
        "--stages",
        type=_count,
        default=2,
        metavar="N",
        help="the most stages that a plain cascade has (default: %(default)s)",
    )


def _add_budget(parser: argparse.ArgumentParser, budget: str) -> None:
    parser.add_argument("--budget", type=_count, metavar="N", help=budget)
    parser.add_argument("--time", type=_seconds, metavar="TIME", help="time limit of a whole run: 90s, 30m, 24h")


def _add_runner(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    where = parser.add_mutually_exclusive_group(required=required)
    where.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help="evaluate in this many processes" + ("" if required else " (default: in this one)"),
    )
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="evaluate on a Dask cluster: tcp://host:8786, or its scheduler file"
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_argument_group(
        "which network",
        "a network or a cascade; by default the cheapest that is as good as the best reference, judged on selection "
        "images (validation images if there are none), if there is one",
    ).add_mutually_exclusive_group()
    choice.add_argument("--key", help="the one with this key, or the beginning of it, or the reference of this name")
    choice.add_argument("--at-most", type=_amount, metavar="COST", help="the best with at most this many multiply-adds")
    choice.add_argument(
        "--at-least", type=_amount, metavar="METRIC", help="the cheapest that is at least this good on these images"
    )


def _count(text: str) -> int:
    try:
        number = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1.")
    return number


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0.")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number from 0, for a free one, to 65535.")
    return int(text)


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0.")
    return number


def _seconds(text: str) -> int:
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "s")
    try:
        seconds = round(float(number) * units[unit])
    except (ValueError, OverflowError):
        seconds = 0
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m, 24h or 2d.")
    return seconds


def _algorithm(text: str) -> str:
    def plain(name: str) -> str:
        return name.casefold().replace("-", "").replace("ii", "2")

    for name in ALGORITHMS:
        if plain(name) == plain(text):
            return name
    hint = did_you_mean(text, ALGORITHMS)
    raise argparse.ArgumentTypeError(f"there is no algorithm {text!r}; choose from {', '.join(ALGORITHMS)}.{hint}")
