"""A search on SLURM, as docs/cluster.md shows it:

python on_slurm.py PROBLEM LOG JOURNAL BUDGET SECONDS WALLTIME [MINIMUM]

With MINIMUM, adaptive scaling has at least so many jobs, each of which leaves before its walltime ends."""

import sys

from dask_jobqueue import SLURMCluster
from pymoo.optimize import minimize
from pymoo_stitch.problems import get_problem

from pymoo_stitch import DaskRunner, Evaluations
from pymoo_stitch.algorithms import AsyncNSGA2

if __name__ == "__main__":
    problem_file, log, journal, budget, seconds, walltime, *how = sys.argv[1:]
    address = {"host": "10.26.0.5", "dashboard_address": "10.26.0.5:0"}
    lifetime = ["--lifetime", "90s", "--lifetime-stagger", "5s"] if how else []
    cluster = SLURMCluster(
        cores=1,
        processes=1,
        memory="4GB",
        walltime=walltime,
        interface="eth0",
        scheduler_options=address,
        job_extra_directives=["--requeue"],
        worker_extra_args=lifetime,
        local_directory=log,
        log_directory=log + "/jobs",
    )
    if how:
        cluster.adapt(minimum_jobs=int(how[0]), maximum_jobs=3)
    else:
        cluster.scale(jobs=3)
    problem = get_problem(problem_file, log=log, seconds=float(seconds))
    with DaskRunner(cluster) as runner:
        evaluations = Evaluations(runner=runner, journal=journal, progress=True)
        minimize(problem, AsyncNSGA2(pop_size=32), ("n_evals", int(budget)), seed=1, evaluator=evaluations)
        print(evaluations, flush=True)
    cluster.close()
