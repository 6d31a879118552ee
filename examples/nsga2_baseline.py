"""pymoo's own NSGA-II on a stitch problem: a problem like any other.

python examples/nsga2_baseline.py
python examples/nsga2_baseline.py --budget 2000
"""

import argparse

from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.indicators.hv import HV
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.operators.mutation.bitflip import BitflipMutation
from pymoo.optimize import minimize

from pymoo_stitch import Evaluations, get_problem

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations (default: %(default)s)")
arguments = parser.parse_args()

problem = get_problem("digits")
algorithm = NSGA2(
    pop_size=50,
    sampling=problem.sampling,  # few stitches at a time, as in the paper
    crossover=TwoPointCrossover(),
    mutation=BitflipMutation(),
)
result = minimize(problem, algorithm, ("n_evals", arguments.budget), seed=1, verbose=True, evaluator=Evaluations())

print(f"\n{'multiply-adds':>15}{'accuracy':>10}")
for cost, error in sorted(set(map(tuple, result.F))):
    print(f"{cost:>15,.0f}{1 - error:>10.4f}")
for name, (cost, error) in zip(problem.references().get("name"), problem.references().get("F"), strict=True):
    print(f"{cost:>15,.0f}{1 - error:>10.4f}  {name}")
print(f"\nhypervolume {HV(ref_point=[1, 1])(problem.normalize(result.F)):.4f}; {result.algorithm.evaluator}")
