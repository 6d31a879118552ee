"""Fitting stitches, all of them in the same pass over the images; the networks stay as they are."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset, default_collate
from tqdm import tqdm

from .execution import Execution
from .layout import Layout
from .network import Tap
from .stitches import KINDS, Link, as_image, is_direct, working_layout
from .task import are_unit_images

if TYPE_CHECKING:
    from .subnetwork import Subnetwork
    from .supernet import Supernet

HELD_OUT = 64
"""How many images at most are kept from fitting to measure the stitches on; never more than an eighth."""

Batch = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True)
class FitReport:
    """`errors` is the relative error of each stitch on held-out images: its mean squared error over the variance of
    what it should give. 0 is perfect, 1 no better than the mean, infinite if it misses a constant."""

    method: str
    errors: dict[str, float]
    samples: int
    seconds: float
    losses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        values = np.array([value for value in self.errors.values() if math.isfinite(value)])
        lines = [f"{self.method}: {len(self.errors)} stitches on {self.samples:,} samples in {self.seconds:.1f} s"]
        if len(values):
            quartiles = " ".join(f"{value:.3g}" for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
            worst = sorted(self.errors, key=self.errors.get, reverse=True)[:3]
            lines.append(f"relative error on held-out images: {quartiles} (least, quartiles, largest)")
            lines.append("largest: " + ", ".join(f"{name} {self.errors[name]:.3g}" for name in worst))
        if self.losses:
            part = max(1, len(self.losses) // 8)
            first, last = np.mean(self.losses[:part]), np.mean(self.losses[-part:])
            lines.append(f"loss: {first:.4g} in the first eighth of {len(self.losses):,} steps, {last:.4g} in the last")
        return "\n".join(lines)


def fit(supernet: "Supernet", images: Any, method: str | None = None, **options: Any) -> FitReport:
    """Fit the stitches of a supernet; see `Supernet.fit`."""
    if method is not None and method not in METHODS:
        raise ValueError(f"there is no method {method!r} of fitting; there are {', '.join(METHODS)}.")
    if method is not None:
        return METHODS[method](supernet, images, **options)
    learning = [link for link in supernet.links if _learns(supernet.stitches[link.stitch])]
    others = [link.stitch for link in learning if not KINDS[link.kind].affine]
    if not others:
        return least_squares(supernet, images, **options)
    if len(others) == len(learning):
        return adam(supernet, images, **options)
    takes = {function: set(signature(function).parameters) for function in (least_squares, adam)}
    if unknown := set(options) - takes[least_squares] - takes[adam]:
        raise TypeError(f"neither least squares nor adam takes the option {min(unknown)!r}.")
    first, second = ({k: v for k, v in options.items() if k in takes[f]} for f in (least_squares, adam))
    closed = least_squares(supernet, images, **first)
    learned = adam(supernet, images, stitches=others, **second)
    seconds = closed.seconds + learned.seconds
    return replace(learned, method="least squares and adam", seconds=seconds)


# --------------------------------------------------------------------------------------------------------- least squares


def least_squares(
    supernet: "Supernet",
    images: Any,
    *,
    batch_size: int = 32,
    positions: int = 16,
    ridge: float = 1e-6,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> FitReport:
    """Solve for each affine stitch what minimises the mean squared error between its output and the original tensor.

    One pass accumulates, in float64, the Gram matrices of the taps that are read, each once for all its links, and
    their products with what is to be given. No activations are kept beyond a batch: memory is 8·C² bytes for each tap
    of C channels that a link reads and 8·C·D bytes for each pair of taps, and of the activations themselves only what
    is still to be read.

    :param images: a tensor of images, a Dataset, or a DataLoader or another iterable of batches. Labels are ignored.
    :param positions: how many positions of each image are used at most, the same for all images.
    :param ridge: added to each variance, as part of the mean variance of the tap.
    """
    chosen = [i for i, link in enumerate(supernet.links) if KINDS[link.kind].affine]
    if not chosen:
        kinds = sorted({link.kind for link in supernet.links})
        raise ValueError(f"least squares fits affine kinds only, and the links are of {kinds}. Use method='adam'.")
    start, device = time.perf_counter(), torch.device(device or "cpu")
    execution = Execution(supernet, device)
    stitches = supernet.stitches.to(device).eval()
    data = _Data(supernet, images, batch_size, device, progress, "least squares")
    moments = _Moments(supernet, chosen, stitches, positions)
    for batch, _ in data.batches():
        moments.add(execution.taps(batch))
    for name in dict.fromkeys(supernet.links[i].stitch for i in chosen):
        links = [i for i in chosen if supernet.links[i].stitch == name]
        adapter = adapter_of(stitches[name])
        weight, bias = _solve(*moments.pooled(links), ridge, centred=adapter.bias is not None)
        with torch.no_grad():
            adapter.weight.copy_(weight.view_as(adapter.weight))
            if adapter.bias is not None:
                adapter.bias.copy_(bias)
    errors = _held_out_errors(supernet, execution, data, stitches)
    stitches.to("cpu")
    return FitReport("least squares", errors, data.seen, time.perf_counter() - start)


def adapter_of(stitch: nn.Module) -> nn.Module:
    """The affine map itself: the module before the conversion to the target's layout."""
    return stitch[-2] if isinstance(stitch, nn.Sequential) else stitch


class _Moments:
    """Sums over samples of x, y, x xᵀ and x yᵀ for links from taps x to taps y, each kept once however many links use it."""

    def __init__(self, supernet: "Supernet", links: Sequence[int], stitches: nn.ModuleDict, positions: int):
        self.supernet, self.positions, self._chosen = supernet, positions, set(links)
        self._enter = {i: stitches[supernet.links[i].stitch] for i in links}
        self._last = {key: i for i in links for key in self._keys(supernet.links[i])}
        self._sums: dict[tuple, torch.Tensor] = {}
        self._grams: dict[tuple, torch.Tensor] = {}
        self._crosses: dict[tuple, torch.Tensor] = {}
        self._counts: dict[tuple, int] = {}

    @staticmethod
    def _keys(link: Link) -> tuple[tuple, tuple]:
        """What names the rows of a link's source and of its target: the tap and how it is converted."""
        if is_direct(link):
            return (str(link.source),), (str(link.target),)
        return (str(link.source), "resized", link.target.grid), (str(link.target), "image")

    def add(self, taps: Iterable[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
        rows: dict[tuple, torch.Tensor] = {}
        crossed = set()
        for number, source, target in taps:
            if number not in self._chosen:
                continue
            link = self.supernet.links[number]
            x_key, y_key = self._keys(link)
            if x_key not in rows:
                rows[x_key] = source_rows(link, self._enter[number], source, self.positions)
                self._add_sum(x_key, rows[x_key])
            if (x_key, "gram") not in crossed:
                crossed.add((x_key, "gram"))
                self._grams[x_key] = self._grams.get(x_key, 0) + rows[x_key].T @ rows[x_key]
            if y_key not in rows:
                rows[y_key] = target_rows(link, target, self.positions)
                self._add_sum(y_key, rows[y_key])
            if (x_key, y_key) not in crossed and (y_key, x_key) not in crossed:
                crossed.add((x_key, y_key))
                flip = (y_key, x_key) in self._crosses
                a, b = (y_key, x_key) if flip else (x_key, y_key)
                self._crosses[a, b] = self._crosses.get((a, b), 0) + rows[a].T @ rows[b]
            for key in (x_key, y_key):
                if self._last[key] == number:
                    rows.pop(key, None)

    def pooled(self, links: Sequence[int]) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The sums over all samples of several links that share a stitch: n, Σx, Σy, Σx xᵀ, Σx yᵀ."""
        parts = []
        for i in links:
            x, y = self._keys(self.supernet.links[i])
            cross = self._crosses[x, y] if (x, y) in self._crosses else self._crosses[y, x].T
            parts.append((self._counts[x], self._sums[x], self._sums[y], self._grams[x], cross))
        return tuple(sum(column[1:], start=column[0]) for column in zip(*parts, strict=True))

    def _add_sum(self, key: tuple, rows: torch.Tensor) -> None:
        self._sums[key] = self._sums.get(key, 0) + rows.sum(0)
        self._counts[key] = self._counts.get(key, 0) + len(rows)


def source_rows(link: Link, stitch: nn.Module, source: torch.Tensor, positions: int) -> torch.Tensor:
    """What the affine map of a link's stitch reads for a sample of positions of every image, as rows of channels in
    float64."""
    return _rows(source if is_direct(link) else stitch[:-2](source), link, link.source, positions)


def target_rows(link: Link, target: torch.Tensor, positions: int) -> torch.Tensor:
    """What it is to give, for the same positions."""
    plain = is_direct(link) or link.target.layout is Layout.VECTOR
    return _rows(target if plain else as_image(target, link.target), link, link.target, positions)


def _rows(tensor: torch.Tensor, link: Link, tap: Tap, positions: int) -> torch.Tensor:
    layout = working_layout(KINDS[link.kind], link.source, link.target)
    rows = (
        tensor.flatten(2).transpose(1, 2)
        if layout is Layout.IMAGE
        else tensor.reshape(len(tensor), -1, tensor.shape[-1])
    )
    count = rows.shape[1]
    if count > positions:
        generator = torch.Generator().manual_seed(count)
        rows = rows[:, torch.randperm(count, generator=generator)[:positions].to(rows.device)]
    rows = rows.double().flatten(0, 1)
    _check_finite(rows, tap)
    return rows


def _check_finite(tensor: torch.Tensor, tap: Tap) -> None:
    if not tensor.sum().isfinite():
        raise ValueError(
            f"the tap {tap} has NaN or infinite values for the images given, so that no stitch at it can be fitted. "
            "Are they normalised as the network expects?"
        )


def _solve(
    n: int,
    x: torch.Tensor,
    y: torch.Tensor,
    xx: torch.Tensor,
    xy: torch.Tensor,
    ridge: float,
    centred: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the affine map of least squared error, from sums over n samples; without `centred` the bias is
    0."""
    mean_x, mean_y = (x / n, y / n) if centred else (torch.zeros_like(x), torch.zeros_like(y))
    covariance = xx / n - torch.outer(mean_x, mean_x)
    shared = xy / n - torch.outer(mean_x, mean_y)
    penalty = _penalty(covariance.diagonal().clamp_min(0).mean(), ridge)
    solution = _solve_positive(covariance, shared, penalty)
    return solution.T, mean_y - solution.T @ mean_x


def solve_rows(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from the samples themselves, rows of x [n, C] and y [n, D], by the smaller of two systems: C×C, or n×n where
    there are fewer samples than channels."""
    n, channels = x.shape
    if channels <= n:
        return _solve(n, x.sum(0), y.sum(0), x.T @ x, x.T @ y, ridge, centred)
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(channels), y.new_zeros(y.shape[1]))
    x, y = x - mean_x, y - mean_y
    kernel = x @ x.T / n
    penalty = _penalty(kernel.diagonal().sum() / channels, ridge)
    weight = (x.T @ _solve_positive(kernel, y / n, penalty)).T
    return weight, mean_y - weight @ mean_x


def solve_factors(
    x: torch.Tensor, y: torch.Tensor, ridge: float = 1e-6, centred: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same weight [D, C], never written down: the product of the second factor [D, n] and the first [n, C], whose rows
    are orthonormal, for fewer samples n than channels; and the bias."""
    n, channels = x.shape
    mean_x, mean_y = (x.mean(0), y.mean(0)) if centred else (x.new_zeros(channels), y.new_zeros(y.shape[1]))
    left, scales, down = torch.linalg.svd(x - mean_x, full_matrices=False)
    penalty = n * _penalty(scales.square().sum() / n / channels, ridge)
    up = (y - mean_y).T @ left * (scales / (scales.square() + penalty))
    return down, up, mean_y - up @ (down @ mean_x)


def _penalty(variance: torch.Tensor, ridge: float) -> torch.Tensor:
    """Never nothing: directions that do not vary would be divided by rounding errors."""
    return torch.where(variance > 0, max(ridge, 1e-12) * variance, torch.ones_like(variance))


def _solve_positive(matrix: torch.Tensor, right: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """(matrix + penalty)⁻¹ right, of a matrix that is positive up to rounding."""
    for _ in range(8):
        factor, failed = torch.linalg.cholesky_ex(
            matrix + penalty * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        )
        if not failed:
            break
        penalty = penalty * 10  # rounding has made a variance negative: a tap with nearly dependent channels
    else:
        raise ValueError(
            "the channels of a tap depend on each other so much that no stitch can be fitted: raise ridge."
        )
    return torch.cholesky_solve(right, factor)


# ------------------------------------------------------------------------------------------------------------------ adam


def adam(
    supernet: "Supernet",
    images: Any,
    *,
    batch_size: int = 32,
    samples: int = 16_384,
    lr: float = 1e-3,
    stitches: Iterable[str] | None = None,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitReport:
    """[G] 4: minimise the sum over stitches of the mean squared error between a stitch's output and the original tensor,
    by Adam, for stitches of any kind.

    Every link's gradient is computed as soon as its two taps are there, so that the activations of one link, not of
    all, are in memory.

    :param samples: how many images are shown in all; fewer images than that are shown several times.
    :param stitches: the names of those to fit; all by default.
    """
    start, device = time.perf_counter(), torch.device(device or "cpu")
    names = {name for name in stitches or supernet.stitches if _learns(supernet.stitches[name])}
    execution = Execution(supernet, device)
    modules = supernet.stitches.to(device)
    parameters = [parameter for name in sorted(names) for parameter in modules[name].parameters()]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    data = _Data(supernet, images, batch_size, device, progress, "adam", samples, seed)
    losses = []
    with _learning(modules, names):
        for batch, _ in data.batches():
            optimizer.zero_grad(set_to_none=True)
            total = 0.0
            for number, source, target in execution.taps(batch):
                name = supernet.links[number].stitch
                if name in names:
                    _check_finite(source, supernet.links[number].source)
                    _check_finite(target, supernet.links[number].target)
                    with _mixed_precision(device):
                        loss = F.mse_loss(modules[name](source).float(), target)
                    loss.backward()
                    total += loss.item()
            if not math.isfinite(total):
                raise ValueError(f"the loss became {total} after {data.seen} samples. Use a smaller lr than {lr}.")
            optimizer.step()
            losses.append(total)
            data.tell(loss=f"{total:.4g}")
    errors = _held_out_errors(supernet, execution, data, modules)
    modules.to("cpu")
    return FitReport("adam", errors, data.seen, time.perf_counter() - start, losses)


# -------------------------------------------------------------------------------------------------------------- finetune


def finetune(
    supernet: "Supernet",
    images: Any,
    *,
    subnetwork: "Subnetwork | None" = None,
    genotypes: Sequence[np.ndarray] | np.ndarray | None = None,
    networks: float = 0.0,
    batch_size: int = 32,
    samples: int = 4_096,
    lr: float = 1e-3,
    labels: bool = False,
    distillation: float = 1.0,
    teacher: Sequence[bool] | np.ndarray | None = None,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitReport:
    """[SN]: at each step select a random subnetwork and train the stitches it uses, so that stitches behind one another
    learn to live with each other's errors. The networks stay as they are, unless `networks` is given.

    :param subnetwork: train this one always, and its own stitches (`Subnetwork.fit`).
    :param genotypes: select one of these at each step, all equally often; of those in which there is nothing to train,
        none is selected.
    :param networks: train the parameters of the networks as well, at this part of `lr`; the published code does so for
        hierarchical networks at a tenth. The supernet then has networks of its own: those it was made of stay as they
        are. Statistics of batch norms are not trained.
    :param labels: train on the labels that come with the images, by cross-entropy.
    :param distillation: the weight of the divergence from the teacher; 0 switches it off.
    :param teacher: the genotype of the subnetwork to learn from, its networks as they are before training; by default
        their ensemble.
    """
    if not labels and distillation <= 0:
        raise ValueError("there is nothing to learn from: neither labels=True nor a positive distillation is given.")
    if isinstance(networks, bool) or networks < 0 or (networks and subnetwork is not None):
        raise ValueError(
            f"networks is a part of lr, such as 0.1, and for a whole supernet, but is {networks}"
            f"{' for one subnetwork' if subnetwork is not None else ''}."
        )
    if subnetwork is not None and not _can_learn(subnetwork):
        raise ValueError("this subnetwork uses no stitch, so that there is nothing to fit.")
    start, device = time.perf_counter(), torch.device(device or "cpu")
    before = Execution(supernet, device)
    execution = Execution(supernet, device, learning=True) if networks else before
    stitches = (supernet if subnetwork is None else subnetwork).stitches.to(device)
    expert = supernet.subnetwork(list(supernet.references.values())[-1] if teacher is None else teacher)
    groups = [{"params": list(stitches.parameters())}, {"params": execution.parameters, "lr": lr * networks}]
    parameters = [parameter for group in groups for parameter in group["params"]]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, math.ceil(samples / batch_size))
    choose = _chooser(supernet, subnetwork, genotypes, networks > 0, np.random.default_rng(seed))
    data = _Data(supernet, images, batch_size, device, progress, "finetune", samples, seed)
    losses = []
    with _learning(stitches, stitches):
        for batch, truth in data.batches():
            if labels and truth is None:
                raise ValueError("labels=True needs batches of (images, labels), but only images are given.")
            with _mixed_precision(device):
                output = execution.run(choose(), batch, stitches).float()
            loss = F.cross_entropy(output, truth.to(device)) if labels else output.new_zeros(())
            if distillation > 0:
                with torch.no_grad():
                    expected = before.run(expert, batch, stitches)
                loss = loss + distillation * _divergence(output, expected)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            data.tell(loss=f"{losses[-1]:.4g}")
    errors = _held_out_errors(supernet, execution, data, stitches)
    stitches.to("cpu")
    if networks:
        supernet.take_networks(execution.networks())
    return FitReport("finetune", errors, data.seen, time.perf_counter() - start, losses)


def _chooser(
    supernet: "Supernet",
    subnetwork: "Subnetwork | None",
    genotypes: Sequence[np.ndarray] | np.ndarray | None,
    with_networks: bool,
    rng: np.random.Generator,
) -> "Callable[[], Subnetwork]":
    """What is trained at the next step."""
    if subnetwork is not None:
        return lambda: subnetwork
    if genotypes is None:
        return lambda: _random_subnetwork(supernet, rng)
    given = [supernet.subnetwork(x) for x in genotypes]
    if not with_networks:
        given = [each for each in given if _can_learn(each)]
    if not given:
        raise ValueError("none of the genotypes uses a stitch, so that there is nothing to fit.")
    return lambda: given[rng.integers(len(given))]


def _can_learn(subnetwork: "Subnetwork") -> bool:
    return any(_learns(subnetwork.stitches[link.stitch]) for link in subnetwork.links)


def _random_subnetwork(supernet: "Supernet", rng: np.random.Generator) -> "Subnetwork":
    """One that uses a stitch."""
    for _ in range(1_000):
        subnetwork = supernet.subnetwork(random_genotype(supernet, rng))
        if _can_learn(subnetwork):
            return subnetwork
    raise ValueError("no random genotype uses a stitch: is any link on a path to the output?")


def random_genotype(supernet: "Supernet", rng: np.random.Generator) -> np.ndarray:
    """A genotype as a search meets them: [G]'s initial density or up to eight times that, the output uniform."""
    density = min(0.5, 6.18 / supernet.n_var * 2 ** rng.uniform(0, 3))
    x = rng.random(supernet.n_var) < density
    references = list(supernet.references.values())
    x[len(supernet.links) :] = references[rng.integers(len(references))][len(supernet.links) :]
    return x


def _divergence(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The mean Kullback–Leibler divergence of class probabilities, classes in the second dimension."""
    terms = F.kl_div(output.log_softmax(1), expected.log_softmax(1), log_target=True, reduction="none")
    return terms.sum(1).mean()


METHODS: Mapping[str, Callable[..., FitReport]] = {"least-squares": least_squares, "adam": adam, "finetune": finetune}


# ---------------------------------------------------------------------------------------------------------- common parts


@contextmanager
def _learning(stitches: nn.ModuleDict, names: Iterable[str]) -> Iterator[None]:
    """Stitches of these names in training mode inside; all in eval mode and on the CPU behind it, whatever happens."""
    for name in names:
        stitches[name].train()
    try:
        yield
    finally:
        stitches.eval().to("cpu").zero_grad(set_to_none=True)


def _learns(stitch: nn.Module) -> bool:
    """Whether there is anything in a stitch to fit."""
    return next(stitch.parameters(), None) is not None


def _mixed_precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, enabled=device.type == "cuda")


def _held_out_errors(
    supernet: "Supernet", execution: Execution, data: "_Data", stitches: Mapping[str, nn.Module]
) -> dict[str, float]:
    """The relative error of each stitch on images that were kept from fitting; the mean over links that share one."""
    sums: dict[int, list[Any]] = {}
    for batch in data.held_out.split(data.batch_size):
        for number, source, target in execution.taps(batch.to(execution.device)):
            link = supernet.links[number]
            if link.stitch not in stitches or not _learns(stitches[link.stitch]):
                continue
            _check_finite(source, link.source)
            _check_finite(target, link.target)
            with torch.no_grad():
                given = stitches[link.stitch].to(execution.device)(source)
            difference, truth = (_channels_last(tensor, link.target).double() for tensor in (given - target, target))
            new = difference.square().sum().item(), truth.square().sum().item(), truth.sum(0), len(truth)
            sums[number] = [a + b for a, b in zip(sums[number], new, strict=True)] if number in sums else list(new)
    errors: dict[str, list[float]] = {}
    for number, (squares, power, totals, count) in sums.items():
        variance = power - (totals.square().sum() / count).item()
        exact = squares <= 1e-12 * (power + count)  # of a tap that does not vary
        error = squares / variance if variance > 1e-12 * power else 0.0 if exact else math.inf
        errors.setdefault(supernet.links[number].stitch, []).append(error)
    return {name: float(np.mean(values)) for name, values in errors.items()}


def _channels_last(tensor: torch.Tensor, tap: Tap) -> torch.Tensor:
    """All positions of all images as rows of channels."""
    return (tensor.movedim(1, -1) if tap.layout is Layout.IMAGE else tensor).reshape(-1, tap.channels)


class _Data:
    """Batches of images on a device, from whatever a user gives, with some kept back and a progress bar.

    Of a dataset, images all over it are kept back; of batches, the last of each until there are enough. Without
    `samples` there is one pass in the order given; with it a dataset is shuffled, and shown again until that many images
    were seen. `seen` and `held_out` are complete when the batches are used up."""

    def __init__(
        self,
        supernet: "Supernet",
        images: Any,
        batch_size: int,
        device: torch.device,
        progress: bool | None,
        title: str,
        samples: int | None = None,
        seed: int = 0,
    ):
        if batch_size < 1 or (samples is not None and samples < 1):
            raise ValueError(f"batch_size and samples must be at least 1, but are {batch_size} and {samples}.")
        if isinstance(images, torch.Tensor):
            images = TensorDataset(images)
        elif isinstance(images, tuple) and all(isinstance(part, torch.Tensor) for part in images):
            images = TensorDataset(*images)
        self.shape, self.images, self.batch_size, self.device = supernet.input_shape, images, batch_size, device
        self.takes_unit = all(network.takes_unit_images for network in supernet.networks)
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.seen, self._kept = 0, []
        total = samples or (len(images) if isinstance(images, Dataset) else None)
        self._bar = tqdm(total=total, desc=title, unit=" images", disable=None if progress is None else not progress)

    @property
    def held_out(self) -> torch.Tensor:
        return torch.cat(self._kept)

    def tell(self, **facts: str) -> None:
        self._bar.set_postfix(facts)

    def batches(self) -> Iterator[Batch]:
        with self._bar:
            while True:
                before = self.seen
                for x, y in self._one_pass():
                    if self.samples is not None and self.seen >= self.samples:
                        return
                    self.seen += len(x)
                    self._bar.update(len(x))
                    yield x.to(self.device), y
                if self.seen == 0:
                    raise ValueError("no images are given to fit the stitches on.")
                if self.samples is None or self.seen == before:  # one pass was asked for, or an iterator is used up
                    return

    def _one_pass(self) -> Iterator[Batch]:
        if isinstance(self.images, Dataset):
            yield from self._dataset_pass()
        else:
            quota = HELD_OUT
            first = not self._kept
            for item in self.images:
                x, y = self._checked(item)
                keep = min(quota, len(x) // 8)
                quota -= keep
                if first and (keep or not self._kept):
                    self._kept.append(x[len(x) - keep :] if keep else x)
                yield x[: len(x) - keep], None if y is None else y[: len(x) - keep]

    def _dataset_pass(self) -> Iterator[Batch]:
        total = len(self.images)
        keep = min(HELD_OUT, total // 8)
        kept = set(range(0, total, max(total // keep, 1))[:keep]) if keep else set()
        shown = [i for i in range(total) if i not in kept]
        if not self._kept and total:
            chosen = sorted(kept) or shown[:HELD_OUT]
            self._kept.append(self._take(chosen)[0])
        if self.samples is not None:
            shown = [shown[i] for i in torch.randperm(len(shown), generator=self.generator)]
        for at in range(0, len(shown), self.batch_size):
            yield self._take(shown[at : at + self.batch_size])

    def _take(self, indices: Sequence[int]) -> Batch:
        if isinstance(self.images, TensorDataset):
            return self._checked([tensor[indices] for tensor in self.images.tensors])
        return self._checked(default_collate([self.images[i] for i in indices]))

    def _checked(self, item: Any) -> Batch:
        x, y = (item[0], item[1] if len(item) > 1 else None) if isinstance(item, (tuple, list)) else (item, None)
        if isinstance(x, torch.Tensor) and x.dtype is torch.uint8:
            x = x.float() / 255
        if not isinstance(x, torch.Tensor) or x.dtype is not torch.float32 or tuple(x.shape[1:]) != self.shape:
            given = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(
                f"the stitches are fitted on batches of float32 images of shape {self.shape}, but a batch is {given}. "
                "Convert, resize or crop the images."
            )
        if self.takes_unit and not are_unit_images(x):
            raise ValueError(
                f"the stitches are fitted on images with values from {x.min():.3g} to {x.max():.3g}, but the networks take "
                "images in [0, 1] and normalise them themselves."
            )
        return x, y
