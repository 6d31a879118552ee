"""Search on a cluster: workers on this machine, or those of an existing scheduler.

python examples/dask_cluster.py
python examples/dask_cluster.py --scheduler tcp://head:8786 --budget 20000
"""

import argparse

from pymoo.optimize import minimize

from pymoo_stitch import DaskRunner, Evaluations, get_problem
from pymoo_stitch.algorithms import LKGOMEA

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=500, help="evaluations (default: %(default)s)")
parser.add_argument("--scheduler", help="the address of a Dask scheduler (default: start two workers here)")


def main():
    arguments = parser.parse_args()
    problem = get_problem("digits")
    with DaskRunner(arguments.scheduler) if arguments.scheduler else DaskRunner(n_workers=2) as runner:
        print(f"{runner.n_workers} workers; dashboard: {runner.dashboard}")
        evaluations = Evaluations(runner=runner, progress=True)
        result = minimize(problem, LKGOMEA(), ("n_evals", arguments.budget), seed=1, evaluator=evaluations)
        print(f"{evaluations}; the workers were busy for {runner.utilisation:.0%} of the time")
    for cost, error in sorted(map(tuple, result.F)):
        print(f"{cost:>12,.0f} multiply-adds, accuracy {1 - error:.4f}")


if __name__ == "__main__":  # workers are processes that import this file
    main()
