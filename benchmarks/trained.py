"""The trained networks that benchmarks measure on, and the problem of ResNet-20 and ResNet-56 for CIFAR-10."""

import sys

from pymoo_stitch import Network, StitchProblem, Supernet, Task


def folder_module(folder):
    """`networks.py` in a folder, with `load(name, normalized=False)` and `NETWORKS`."""
    sys.path.insert(0, str(folder))
    try:
        import networks
    except ImportError as error:
        raise SystemExit(
            f"There are no networks in {folder}: {error}. Name the folder that holds networks.py with --data."
        ) from None
    return networks


def imported(data, names, example):
    """Networks of a folder's module."""
    return [
        Network.from_module(data.load(name, normalized=False), example, name=name, normalize=data.NETWORKS[name][2])
        for name in names
    ]


def cifar10_pair(folder):
    """The two networks, images for fitting, and images with labels for measuring; the folder's module also has
    `cifar10(split)`."""
    data = folder_module(folder)
    images = data.cifar10("train")[0].float() / 255
    validation, labels = data.cifar10("validation")
    return imported(data, ("resnet20", "resnet56"), images[:1]), images, validation.float() / 255, labels


def imagenet_pair(folder):
    """The same for MobileNetV2 and EfficientNet-Lite0: 200 images for fitting, 280 for measuring. (Those between served
    to choose how stitches are fitted.)"""
    data = folder_module(folder)
    images, labels = data.imagenet()
    images = images[:, :, 16:240, 16:240].float() / 255
    networks = imported(data, ("mobilenet_v2", "tf_efficientnet_lite0"), images[:1])
    return networks, images[:200], images[320:], labels[320:]


def cifar10_problem(folder, images):
    """The search over their subnetworks, on so many images."""
    networks, calibration, validation, labels = cifar10_pair(folder)
    supernet = Supernet.build(networks)
    supernet.fit(calibration[:2_500], batch_size=100, positions=64)
    return StitchProblem(supernet, Task(validation=(validation[:images], labels[:images])))
