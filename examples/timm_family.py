"""A family of timm models: many members between a few anchors, in one module, chosen by cost.

python examples/timm_family.py --pretrained --images folder/of/images
python examples/timm_family.py swin_tiny_patch4_window7_224 swin_small_patch4_window7_224 swin_base_patch4_window7_224
python examples/timm_family.py resnet18 resnet50
"""

import argparse

import timm
import torch
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pymoo_stitch import Family

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
models = [f"deit_{size}_patch16_224" for size in ("tiny", "small", "base")]
parser.add_argument("models", nargs="*", default=models, help="names of timm models of one design")
parser.add_argument("--pretrained", action="store_true", help="download trained weights (else they are random)")
parser.add_argument("--images", metavar="FOLDER", help="images by class to fit the stitches on (default: noise)")
parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: 224)")
parser.add_argument("--window", type=int, default=2, help="blocks that are joined with each other (default: 2)")
arguments = parser.parse_args()

options = {"img_size": arguments.size} if arguments.size != 224 else {}  # of transformers
networks = [timm.create_model(name, pretrained=arguments.pretrained, **options) for name in arguments.models]
image = torch.rand(1, 3, arguments.size, arguments.size)  # in [0, 1]
family = Family.build(networks, image, normalize="timm", window=arguments.window)
print(family, "\n")

images = torch.rand(16, 3, arguments.size, arguments.size)
if arguments.images:
    crop = [v2.Resize(256), v2.CenterCrop(arguments.size), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    images = ImageFolder(arguments.images, v2.Compose(crop))
print(family.fit(images, batch_size=8, positions=128), "\n")

network = family.module()  # holds every weight once
for part in (1.0, 0.5, 0.25, 0.1):
    network.at_most(max(part * family.costs[-1], family.costs[0]))
    with torch.inference_mode():
        output = network(image)
    cost = family.costs[network.selected]
    print(f"with {part:.0%} of the cost: member {network.selected}, {cost:,} multiply-adds, class {output.argmax()}")
