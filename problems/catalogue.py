"""The ready-made problems and their options. What they need is imported when one is made."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..problem import StitchProblem


def digits(*, seed: int = 0, supernet: Path | None = None) -> "StitchProblem":
    """Two small networks for scikit-learn's handwritten digits, trained on the spot; needs no download.

    A residual network and one of inverted residuals, which are trained in a few seconds when the problem is made for the
    first time. Of the 1,797 images of 1×8×8, 797 are for training and calibration, 500 for validation and 500 for test,
    disjoint and stratified.

    :param seed: of the training. The images are the same for all.
    :param supernet: a file from `Supernet.save` to use instead.
    """
    from . import digits

    return digits.problem(seed=seed, supernet=supernet)


def cifar10(
    *,
    data: Path,
    images: int = 500,
    test_images: int = 1_500,
    samples: int = 2_500,
    supernet: Path | None = None,
) -> "StitchProblem":
    """ResNet-20 and ResNet-56 trained on CIFAR-10, from files in a folder.

    :param data: a folder that holds `resnet20.safetensors` and `resnet56.safetensors`, and images: either `images.npz`
        with x_train, y_train, x_validation, y_validation, x_test and y_test (uint8 of n×3×32×32, classes), or
        `cifar-10-batches-bin`, the binary version of CIFAR-10. Of that, validation images are the first of the test
        batch, and test images those that follow.
    :param images: how many validation images.
    :param test_images: how many test images.
    :param samples: on how many of the train images stitches are fitted.
    :param supernet: a file from `Supernet.save` to use instead of the networks in `data`.
    """
    from . import cifar10

    return cifar10.problem(data=data, images=images, test_images=test_images, samples=samples, supernet=supernet)


def imagenet_a(
    *,
    imagenet: Path,
    imagenetv2: Path,
    annotations: Path | None = None,
    images: int = 1_000,
    samples: int = 16_384,
    size: int = 224,
    fit: str = "least-squares",
    seed: int = 0,
    pretrained: bool = True,
    supernet: Path | None = None,
) -> "StitchProblem":
    """Pair (a) of the paper: timm's ResNet-152 and EfficientNet-B4 on ImageNet, at 224.

    Stitches are fitted on images of ImageNet's train set that have a bounding box, validation images are of ImageNetV2,
    test images are ImageNet's validation set.

    :param imagenet: a folder with `train` and `val`, each with a folder for each class that has its WordNet id as its
        name. Without `val` the problem has no test split, and says so.
    :param imagenetv2: a folder with `imagenetv2-matched-frequency-format-val`. Beyond 10,000 images
        `imagenetv2-threshold0.7-format-val` and `imagenetv2-top-images-format-val` follow, each image once. The order is
        the first image of every class, by name, then the second of every class, and so on.
    :param annotations: the bounding boxes of the train set, a folder with an xml file for each image that has one, at
        any depth. Needed unless `supernet` is given.
    :param images: how many validation images.
    :param samples: on how many images stitches are fitted.
    :param size: height and width of images.
    :param fit: how stitches are fitted: least-squares, or adam as in the paper (learning rate 1e-3, each image once).
    :param seed: of the choice of images to fit on, of Adam, and of random weights.
    :param pretrained: whether timm loads trained weights, from Hugging Face when they are not there yet; else they are
        random.
    :param supernet: a file from `Supernet.save` to use instead.
    """
    options = locals()
    from .imagenet import problem

    return problem("imagenet-a", **options)


def imagenet_b(
    *,
    imagenet: Path,
    imagenetv2: Path,
    annotations: Path | None = None,
    images: int = 1_000,
    samples: int = 16_384,
    size: int = 224,
    fit: str = "least-squares",
    seed: int = 0,
    pretrained: bool = True,
    supernet: Path | None = None,
) -> "StitchProblem":
    """Pair (b) of the paper: timm's ResNet-50 and ResNeXt-50 (32×4d) on ImageNet, at 224.

    The options and the data are those of imagenet-a: `pymoo-stitch info imagenet-a` explains them.
    """
    options = locals()
    from .imagenet import problem

    return problem("imagenet-b", **options)


def voc(
    *,
    voc: Path,
    images: int = 64,
    samples: int = 1_464,
    size: int = 520,
    fit: str = "least-squares",
    seed: int = 0,
    pretrained: bool = True,
    supernet: Path | None = None,
) -> "StitchProblem":
    """The paper's segmentation pair: torchvision's DeepLabV3 with MobileNetV3-Large and ResNet-50 on PASCAL VOC, at 520.

    Stitches are fitted on VOC 2012 train, validation images are the first of VOC 2012 val, test images are VOC 2007 test;
    the metric is the mean accuracy of an image's pixels. As in the paper: some images of VOC 2007 test are in VOC 2012 too,
    under other names, so that gains on test may be a little too large.

    :param voc: a folder with `VOCdevkit/VOC2012`, and for the test split `VOCdevkit/VOC2007`. Without that, the problem
        has no test split, and says so.
    :param images: how many validation images.
    :param samples: on how many images, the first of train, stitches are fitted.
    :param size: height and width to which images and masks are resized.
    :param fit: how stitches are fitted: least-squares, or adam as in the paper (learning rate 1e-2, 10 epochs).
    :param seed: of Adam, and of random weights.
    :param pretrained: whether torchvision loads trained weights, from pytorch.org when they are not there yet; else they
        are random.
    :param supernet: a file from `Supernet.save` to use instead.
    """
    options = locals()
    from .voc import problem

    return problem(**options)
