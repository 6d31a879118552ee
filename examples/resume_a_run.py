"""A run that survives a crash: every evaluation is in its journal, and the same call continues it.

python examples/resume_a_run.py               then press Ctrl-C, or kill it,
python examples/resume_a_run.py               and see it go on
python examples/resume_a_run.py --budget 1000 (more evaluations of the same run)
"""

import argparse

from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, Run, get_problem
from pymoo_stitch.algorithms import LKGOMEA

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations (default: %(default)s)")
parser.add_argument("--journal", default="run.sqlite", help="(default: %(default)s)")
arguments = parser.parse_args()

problem = get_problem("digits")
evaluations = Evaluations(journal=arguments.journal, progress=True)
minimize(problem, LKGOMEA(pop_size=64), ("n_evals", arguments.budget), seed=1, evaluator=evaluations)
print(f"{evaluations.real:,} evaluations, {evaluations.replayed:,} of them from the journal")

run = Run.read(arguments.journal)
print(f"hypervolume {run.hypervolume(problem.hv_ref_point)[-1]:.4f}; the front:")
for cost, error in run.F[run.front]:
    print(f"{cost:>12,.0f} multiply-adds, accuracy {1 - error:.4f}")
