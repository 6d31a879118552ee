"""Networks of your own: two modules, images for the stitches, images with labels for the search.

python examples/own_networks.py
"""

import argparse

import torch
from pymoo.optimize import minimize
from sklearn.datasets import load_digits
from torch import nn

from pymoo_stitch import StitchProblem, Supernet, Task
from pymoo_stitch.algorithms import LKGOMEA

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=200, help="evaluations (default: %(default)s)")
arguments = parser.parse_args()
torch.manual_seed(1)


def block(inputs, outputs, stride=1):
    return [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()]


small = nn.Sequential(*block(1, 8), *block(8, 16, 2), *block(16, 16), nn.Flatten(), nn.Linear(256, 10))
large = nn.Sequential(
    *block(1, 24), *block(24, 24), *block(24, 32, 2), *block(32, 32), *block(32, 32), nn.Flatten(), nn.Linear(512, 10)
)

images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = (images / 16).float().view(-1, 1, 8, 8)  # in [0, 1]
train, validation, test = slice(0, 900), slice(900, 1350), slice(1350, None)
for network in (small, large):  # yours are trained already
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(8):
        for batch in torch.randperm(900).split(50):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

supernet = Supernet.build([small.eval(), large.eval()], images[:1])
print(supernet.fit(images[train]))

task = Task(validation=(images[validation], labels[validation]), test=(images[test], labels[test]))
problem = StitchProblem(supernet, task)
result = minimize(problem, LKGOMEA(), ("n_evals", arguments.budget), seed=1)

print(problem.references().get("name", "F"))
again = problem.reevaluate(result.X, split="test")
for x, on_validation, on_test in zip(result.X, result.opt.get("accuracy"), again.get("accuracy"), strict=True):
    print(f"{problem.subnetwork(x)!r}: {on_validation:.4f} on validation, {on_test:.4f} on test")
