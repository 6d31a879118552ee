"""Import, matching, selection and forward pass, on ResNet-152 and EfficientNet-B4 with random weights.

python benchmarks/supernet.py
python benchmarks/supernet.py --pair resnet50 resnext50_32x4d
"""

import argparse
import time
import warnings

import numpy as np
import timm
import torch
from record import record

from pymoo_stitch import Network, Supernet, match

torch.set_num_threads(1)


def seconds(function, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        result = function()
    return (time.perf_counter() - start) / repeats, result


def ratio(first, second, argument, repeats):
    """The median, over pairs of runs one right after the other, of the first's time over the second's."""
    ratios = []
    with torch.inference_mode():
        for number in range(repeats + 1):
            order = (first, second) if number % 2 else (second, first)
            times = {function: seconds(lambda function=function: function(argument))[0] for function in order}
            ratios.append(times[first] / times[second])
    return np.median(ratios[1:])


def spread(matches):
    """The largest part of each network's multiply-adds in which there is no match."""
    depths = [np.array([0.0, *sorted(pair[side].depth for pair in matches), 1.0]) for side in (0, 1)]
    return [np.diff(d).max() for d in depths]


def main(names, genotypes, repeats):
    modules = [timm.create_model(name).eval() for name in names]
    image = torch.rand(1, 3, 224, 224)
    imports, networks = seconds(lambda: [Network.from_module(module, image) for module in modules])
    print(f"{' + '.join(names)} at 224, random weights")
    for network in networks:
        print(f"  {network}, difference from the module {network.difference:.1g}")
    [network.taps for network in networks]
    matching, found = seconds(lambda: match(networks), repeats=10)
    print(f"matching            {matching * 1e3:8.1f} ms   {len(found.matches)} matches of at most {found.bound}")
    early = match(networks, weight=lambda a, b: np.zeros((len(a), len(b))))
    gaps = {"gap": spread(found.matches), "gap_early": spread(early.matches)}
    print("largest gap between matches, as a fraction of each network, and as early as possible:", gaps)
    row = {"matches": len(found.matches), "bound": found.bound, "matching_ms": 1e3 * matching} | gaps
    building, supernet = seconds(lambda: Supernet.build(networks))
    print(f"import of both      {imports:8.1f} s\nbuild               {building:8.1f} s    {supernet.n_var} variables")
    rng = np.random.default_rng(0)
    assert supernet.subnetwork(np.zeros(supernet.n_var, dtype=bool)).key  # computes the digest of the structure, once
    for name, p in (("few ones, 6.18/ℓ", 6.18 / supernet.n_var), ("half ones", 0.5)):
        population = rng.random((genotypes, supernet.n_var)) < p

        def select(population=population):
            for x in population:
                subnetwork = supernet.subnetwork(x)
                subnetwork.active, subnetwork.key, subnetwork.cost  # noqa: B018

        row["selection_ms"] = seconds(select)[0] / genotypes * 1e3
        print(f"selection           {row['selection_ms']:8.3f} ms   active, key and cost of a genotype, {name}")
    first = supernet.subnetwork(np.zeros(supernet.n_var, dtype=bool)).module()
    for batch in (1, 8):
        value = row[f"forward_{batch}"] = ratio(first, modules[0], torch.rand(batch, 3, 224, 224), repeats)
        print(
            f"forward             {value:8.3f} ×    module() of the all-zero "
            f"genotype over {names[0]} itself, batch {batch}"
        )
    row |= {"import_s": imports, "build_s": building}
    record("supernet", [row], noise={"matches": 0, "bound": 0, "forward_1": 0.1, "forward_8": 0.1}, networks=names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pair", nargs=2, default=["resnet152", "efficientnet_b4"], metavar="MODEL", help="names of timm models"
    )
    parser.add_argument("--genotypes", type=int, default=500, help="how many are selected (default: 500)")
    parser.add_argument("--repeats", type=int, default=30, help="forward passes of each module (default: 30)")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # different normalisations do not matter here
        main(arguments.pair, arguments.genotypes, arguments.repeats)
