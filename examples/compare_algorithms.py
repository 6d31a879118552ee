"""Several algorithms with several seeds on one problem: hypervolumes, statistics and a plot.

python examples/compare_algorithms.py
python examples/compare_algorithms.py --budget 2000 --seeds 5 --output comparison
"""

import argparse

from pymoo_stitch import Comparison, compare, get_problem
from pymoo_stitch.algorithms import GOMEA, LKGOMEA, AsyncGA, nsga2
from pymoo_stitch.report import plot_hypervolume

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=300, help="evaluations of each run (default: %(default)s)")
parser.add_argument("--seeds", type=int, default=3, help="how many (default: %(default)s)")
parser.add_argument("--output", default="comparison", help="folder for journals and the plot (default: %(default)s)")
arguments = parser.parse_args()

problem = get_problem("digits")
algorithms = {"LK-GOMEA": LKGOMEA, "GOMEA": GOMEA, "GA": AsyncGA, "NSGA-II": nsga2}
termination = ("n_evals", arguments.budget)
runs = compare(problem, algorithms, termination, seeds=range(arguments.seeds), folder=arguments.output, progress=True)

comparison = Comparison(runs, problem.hv_ref_point)
print(comparison)

curves = {label: [(range(1, len(curve) + 1), curve) for curve in curves] for label, curves in comparison.curves.items()}
plot_hypervolume(curves).savefig(f"{arguments.output}/hypervolume.png", dpi=150)
print(f"\nThe plot is in {arguments.output}/hypervolume.png.")
