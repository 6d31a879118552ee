"""Take a network home: pick one, retrain its stitches, export it, and use it with torch alone.

python examples/pick_and_export.py
python examples/pick_and_export.py --output network.pt2 --retrain 4096
"""

import argparse

import torch
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, Report, Run, get_problem
from pymoo_stitch.algorithms import LKGOMEA

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations (default: %(default)s)")
parser.add_argument("--output", default="network.pt2", help="the file (default: %(default)s)")
parser.add_argument("--retrain", type=int, default=0, help="train its stitches on this many images (default: none)")
arguments = parser.parse_args()

problem = get_problem("digits")
evaluations = Evaluations(journal="pick.sqlite", progress=True)
minimize(problem, LKGOMEA(pop_size=64), ("n_evals", arguments.budget), seed=1, evaluator=evaluations)

report = Report([Run.read("pick.sqlite")], problem)
print(report)
most = 0.5 * report.references[-1].multiply_adds
chosen = report.recommended or report.choose(at_most=most)  # chosen on selection images; or key=, at_least=
network = chosen.network  # a subnetwork or a cascade of them
if arguments.retrain and not chosen.is_cascade and network.n_stitches:
    network.retrain(problem.task["calibration"].source, samples=arguments.retrain)
network.export(arguments.output, classes=problem.task.classes, metrics=report.measure(network))

network = torch.export.load(arguments.output).module()  # from here on, torch alone
images, labels = next(problem.task["test"].batches(100))
images = images / 255 if images.dtype == torch.uint8 else images
print(f"\n{arguments.output}: {(network(images).argmax(1) == labels).float().mean():.2%} of 100 test images are right")
