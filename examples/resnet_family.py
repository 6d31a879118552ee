"""A family of networks in stages, fitted and fine-tuned together on handwritten digits; all members evaluated, without
a search.

python examples/resnet_family.py
"""

import argparse

import numpy as np
import timm
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from pymoo_stitch import Family, StitchProblem, Task

LAYERS = {"small": (2, 2, 2, 1), "large": (2, 4, 4, 1)}  # blocks in each stage
WIDTHS = {"small": (8, 8, 16, 16), "large": (16, 16, 32, 32)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=6, help="of training for the networks (default: %(default)s)")
parser.add_argument("--samples", type=int, default=6_000, help="images shown in fine-tuning (default: %(default)s)")
arguments = parser.parse_args()
torch.manual_seed(1)

images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = F.interpolate((images / 16).float().view(-1, 1, 8, 8), scale_factor=4)  # in [0, 1]
train, validation = slice(0, 1200), slice(1200, None)

networks = []  # yours are trained already
for name in LAYERS:
    block = timm.models.resnet.BasicBlock
    networks.append(timm.models.ResNet(block, LAYERS[name], 10, 1, channels=WIDTHS[name], stem_width=8))
    optimizer = torch.optim.AdamW(networks[-1].parameters(), 3e-3)
    for _ in range(arguments.epochs):
        for batch in torch.randperm(1200).split(50):
            loss = F.cross_entropy(networks[-1](images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

family = Family.build([network.eval() for network in networks], images[:1])
print(family.fit(images[train], progress=False), "\n")
problem = StitchProblem(family, Task(validation=(images[validation], labels[validation])))


def accuracies():
    return 1 - problem.evaluate(family.codes, return_values_of=["F"])[:, 1]


fitted = accuracies()
options = {"labels": True, "lr": 3e-3, "networks": 0.1, "samples": arguments.samples, "progress": False}
family.finetune((images[train], labels[train]), **options)
tuned = accuracies()

print("multiply-adds  fitted   tuned  stitches")
for subnetwork, before, after in zip(family, fitted, tuned, strict=True):
    print(f"{subnetwork.cost:13,}  {before:.4f}  {after:.4f}  {', '.join(map(str, subnetwork.links))}")
print(f"mean: {np.mean(fitted):.4f} fitted, {np.mean(tuned):.4f} tuned")
