"""Real networks: ResNet-20 and ResNet-56 trained on CIFAR-10, where a folder beside the project holds them."""

import importlib.util
import pathlib

import numpy as np
import pytest
import torch

from pymoo_stitch import Network, Supernet

FOLDER = pathlib.Path(__file__).parents[2] / "shared" / "data"


@pytest.mark.slow
def test_single_stitches_between_trained_networks_keep_their_accuracy():
    if not (FOLDER / "networks.py").is_file():
        pytest.skip(f"there are no trained networks in {FOLDER}")
    spec = importlib.util.spec_from_file_location("networks", FOLDER / "networks.py")
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    images = data.cifar10("train")[0][:1_000].float() / 255
    validation, labels = data.cifar10("validation")
    validation, labels = validation[:200].float() / 255, labels[:200]
    supernet = Supernet.build(
        [
            Network.from_module(
                data.load(name, normalized=False), images[:1], name=name, normalize=data.NETWORKS[name][2]
            )
            for name in ("resnet20", "resnet56")
        ]
    )
    supernet.fit(images, batch_size=100, positions=64)

    def accuracy(x):
        with torch.inference_mode():
            return (supernet.subnetwork(x).module()(validation).argmax(1) == labels).float().mean().item()

    references = {name: accuracy(x) for name, x in supernet.references.items()}
    assert min(references.values()) > 0.85
    found = []
    for number in range(0, len(supernet.links), 11):
        x = supernet.references[supernet.links[number].target.network].copy()
        x[number] = True
        found.append(accuracy(x))
    print(f"references {references}, with one stitch {np.round(found, 3)}")
    assert np.median(found) > 0.8
