"""Plot fronts: with pymoo's Scatter, and as in the paper, with references and the test split.

python examples/plot_front.py
python examples/plot_front.py --budget 2000 --output plots
"""

import argparse
import pathlib

import matplotlib
from pymoo.optimize import minimize
from pymoo.visualization.scatter import Scatter

from pymoo_stitch import get_problem
from pymoo_stitch.algorithms import LKGOMEA, nsga2
from pymoo_stitch.report import plot_fronts

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations of each algorithm (default: %(default)s)")
parser.add_argument("--output", default="plots", help="folder for the plots (default: %(default)s)")
arguments = parser.parse_args()
folder = pathlib.Path(arguments.output)
folder.mkdir(parents=True, exist_ok=True)
matplotlib.use("Agg")  # files, no windows

problem = get_problem("digits")
algorithms = {"LK-GOMEA": LKGOMEA(), "NSGA-II": nsga2()}
termination = ("n_evals", arguments.budget)
results = {name: minimize(problem, algorithm, termination, seed=1) for name, algorithm in algorithms.items()}

plot = Scatter(legend=True, labels=["multiply-adds", "error"])
for name, result in results.items():
    plot.add(result.F, label=name)
plot.add(problem.references().get("F"), marker="x", color="black", label="references")
plot.save(folder / "scatter.png")

splits = ("validation", "selection", "test")
references = {
    split: dict(zip(problem.references(split).get("name"), problem.references(split).get("F"), strict=True))
    for split in splits
}
fronts = {
    split: {name: problem.reevaluate(result.X, split).get("F") for name, result in results.items()} for split in splits
}
plot_fronts(fronts, references).savefig(folder / "fronts.png", dpi=150)
print(f"Plots are in {folder}: scatter.png, fronts.png.")
