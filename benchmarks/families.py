"""The family of DeiT-Ti, -S and -B with random weights: what it takes to list its networks and to switch between them.

python benchmarks/families.py
"""

import time
from statistics import median

import timm
import torch
from record import record

from pymoo_stitch import Family

torch.set_num_threads(1)


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    image = torch.rand(1, 3, 224, 224)
    models = [timm.create_model(f"deit_{size}_patch16_224") for size in ("tiny", "small", "base")]
    family = Family.build(models, image, progress=False)
    print(f"{family!r}, {family.n_parameters:,} parameters")
    print(f"listing: {seconds(lambda: Family(family.supernet)):.3f} s")
    family.supernet.is_fitted = True  # what is measured does not depend on it
    network = family.module()
    pointers = {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}
    first = [seconds(lambda id=id: network.select(id)) for id in range(len(family))]
    again = [seconds(lambda id=id: network.select(id)) for id in range(len(family))]
    print(
        f"to select a network: the first time {median(first):.4f} s (at "
        f"most {max(first):.2f}), then {median(again):.1e} s"
    )
    assert pointers == {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}
    ratio_of = {}
    with torch.inference_mode():
        for id in (0, len(family) // 4, len(family) // 2, len(family) - 1):
            plain = family[id].module()
            network.select(id)
            assert torch.equal(network(image), plain(image))
            ratios = [seconds(lambda: network(image)) / seconds(lambda m=plain: m(image)) for _ in range(15)]
            ratio_of[id] = median(ratios)
            print(
                f"network {id}: forward of the switching module over that of its own, median of 15: {ratio_of[id]:.2f}"
            )
    row = {
        "networks": len(family),
        "first_ms": 1e3 * median(first),
        "most_ms": 1e3 * max(first),
        "again_us": 1e6 * median(again),
    }
    row |= {"forward_least": min(ratio_of.values()), "forward_most": max(ratio_of.values())}
    record("families", [row], noise={"networks": 0, "forward_least": 0.1, "forward_most": 0.1})


if __name__ == "__main__":
    main()
