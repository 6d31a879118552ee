"""Where evaluations happen. A runner takes functions of one genotype and gives back what they return.

    runner.n_workers              how many evaluations happen at a time
    runner.submit(f, x)           queue f(x); its number
    runner.wait(timeout)          the next that is done, as (number, result), or None when the time, in seconds, is over
    runner.cancel()               forget all that is queued or running
    runner(f, X)                  [f(x) for x in X], for pymoo's own algorithms: Problem(elementwise_runner=runner)
    runner.utilisation            the part of the workers' time so far in which they worked

A runner whose `wait` evaluates nothing itself says `is_elsewhere = True`; one whose time is virtual, `is_virtual = True`.
A result is a dictionary; that of a function that raised an exception is {"failed": reason}. Runners add `begun` and `ended`,
in seconds, and the `worker`. A function may have a method `group(X)` that gives the results of several genotypes at once. Any number may be submitted at
a time; a runner starts them in that order. A copy of a runner, pickled or not, has the same workers and nothing to do.
"""

from typing import TYPE_CHECKING

from ..util.lazy import lazy

if TYPE_CHECKING:
    from .dask import DaskRunner as DaskRunner
    from .serial import SerialRunner as SerialRunner
    from .simulated import SimulatedRunner as SimulatedRunner

__getattr__, __dir__, __all__ = lazy(
    __name__, {"dask": ["DaskRunner"], "serial": ["SerialRunner"], "simulated": ["SimulatedRunner"]}
)
