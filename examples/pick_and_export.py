"""Take a network home: pick one from the front, retrain its stitches, export it, and use it with torch alone.

python examples/pick_and_export.py
python examples/pick_and_export.py --output network.pt2 --retrain 4096
"""

import argparse

import torch
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, Report, Run, get_problem
from pymoo_stitch.algorithms import LKGOMEA
from pymoo_stitch.report import describe_subnetwork

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations (default: %(default)s)")
parser.add_argument("--output", default="network.pt2", help="the file (default: %(default)s)")
parser.add_argument("--retrain", type=int, default=0, help="train its stitches on so many images (default: none)")
arguments = parser.parse_args()

problem = get_problem("digits")
evaluations = Evaluations(journal="pick.sqlite", progress=True)
minimize(problem, LKGOMEA(pop_size=64), ("n_evals", arguments.budget), seed=1, evaluator=evaluations)

report = Report([Run.read("pick.sqlite")], problem)
chosen = report.choose()  # the cheapest that is as good as the best reference; or key=, at_most=, at_least=
subnetwork = problem.subnetwork(chosen.x)
print(report, "\n\n", describe_subnetwork(subnetwork), sep="")
if arguments.retrain and subnetwork.n_stitches:
    subnetwork.retrain(problem.task["calibration"].source, samples=arguments.retrain)
subnetwork.export(arguments.output, classes=problem.task.classes, metrics=report.measure(subnetwork))

network = torch.export.load(arguments.output).module()  # from here on, torch alone
images, labels = next(problem.task["test"].batches(100))
images = images / 255 if images.dtype == torch.uint8 else images
print(f"\n{arguments.output}: {(network(images).argmax(1) == labels).float().mean():.2%} of 100 test images are right")
