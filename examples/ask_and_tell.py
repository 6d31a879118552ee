"""Ask and tell: you evaluate, whenever and in whatever order you like.

python examples/ask_and_tell.py
"""

import argparse

import numpy as np
from pymoo.core.population import Population

from pymoo_stitch import get_problem
from pymoo_stitch.algorithms import GOMEA

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=300, help="evaluations (default: %(default)s)")
arguments = parser.parse_args()

problem = get_problem("digits")
algorithm = GOMEA(pop_size=32)
algorithm.setup(problem, termination=("n_evals", arguments.budget), seed=1)

rng, waiting = np.random.default_rng(1), []
while algorithm.has_next():
    waiting.extend(algorithm.ask())  # what was proposed since the last time; it may be nothing
    rng.shuffle(waiting)  # complete them in any order
    done, waiting = Population.create(*waiting[:8]), waiting[8:]
    algorithm.evaluator.eval(problem, done)  # or set F, and whatever else you know, yourself
    algorithm.tell(infills=done)

result = algorithm.result()
print(algorithm.evaluator)
for x, (cost, error) in sorted(zip(map(tuple, result.X), result.F, strict=True), key=lambda pair: pair[1][0]):
    print(f"{cost:>12,.0f} multiply-adds, accuracy {1 - error:.4f}, {problem.subnetwork(x).n_stitches} stitches")
