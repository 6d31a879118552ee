"""Stitch two timm models into a supernet and look at what it holds.

python examples/stitch_two_models.py
python examples/stitch_two_models.py resnet50 resnext50_32x4d --pretrained --save pair.safetensors
"""

import argparse

import numpy as np
import timm
import torch

from pymoo_stitch import Supernet

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="*", default=["resnet18", "regnety_002"], help="names of timm models")
parser.add_argument("--pretrained", action="store_true", help="download trained weights (else they are random)")
parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: 224)")
parser.add_argument("--save", metavar="FILE", help="write the supernet to this file")
arguments = parser.parse_args()

models = [timm.create_model(name, pretrained=arguments.pretrained) for name in arguments.models]
image = torch.rand(1, 3, arguments.size, arguments.size)
supernet = Supernet.build(models, image, normalize="timm")
print(supernet, "\n")

rng = np.random.default_rng(seed=1)
genotypes = supernet.references
genotypes |= {f"random {i}": rng.random(supernet.n_var) < supernet.density for i in range(1, 6)}

print(f"{'genotype':<16}{'ones':>6}{'active ones':>13}{'multiply-adds':>16}   output for one image")
for name, x in genotypes.items():
    subnetwork = supernet.subnetwork(x)
    with torch.inference_mode():
        output = subnetwork.module()(image)
    ones, active_ones = x.sum(), (x & subnetwork.active).sum()
    print(
        f"{name:<16}{ones:>6}{active_ones:>13}{subnetwork.cost:>16,}   {tuple(output.shape)}, class {output.argmax()}"
    )

if arguments.save:
    supernet.save(arguments.save)
    print(f"\nSaved to {arguments.save}; Supernet.load({arguments.save!r}) reads it back.")
