"""The trained networks that benchmarks measure on: ResNet-20 and ResNet-56 for CIFAR-10."""

import sys

from pymoo_stitch import Network, StitchProblem, Supernet, Task


def cifar10_pair(folder):
    """The two networks, images for fitting, and images with labels for measuring. The folder holds `networks.py` with
    `load(name, normalized=False)`, `NETWORKS` and `cifar10(split)`."""
    sys.path.insert(0, str(folder))
    try:
        from networks import NETWORKS, cifar10, load
    except ImportError as error:
        raise SystemExit(
            f"There are no networks in {folder}: {error}. Name the folder that holds networks.py with --data."
        ) from None
    images = cifar10("train")[0].float() / 255
    networks = [
        Network.from_module(load(name, normalized=False), images[:1], name=name, normalize=NETWORKS[name][2])
        for name in ("resnet20", "resnet56")
    ]
    validation, labels = cifar10("validation")
    return networks, images, validation.float() / 255, labels


def cifar10_problem(folder, images):
    """The search over their subnetworks, on so many images."""
    networks, calibration, validation, labels = cifar10_pair(folder)
    supernet = Supernet.build(networks)
    supernet.fit(calibration[:2_500], batch_size=100, positions=64)
    return StitchProblem(supernet, Task(validation=(validation[:images], labels[:images])))
