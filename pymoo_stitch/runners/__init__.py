"""Where evaluations happen.

In: a function (`Evaluate(problem)`, of `evaluations`) and genotypes to call it with. Out: what it returns, with the
time and the worker. A `Runner` states the contract; there is one in this process, one on a Dask cluster, and one in
this process with simulated workers and time.

May import: `util`.

Does not import torch.
"""

from typing import TYPE_CHECKING

from ..util.lazy import lazy

if TYPE_CHECKING:
    from .base import Function as Function
    from .base import Result as Result
    from .base import Runner as Runner
    from .base import check_runner as check_runner
    from .dask import DaskRunner as DaskRunner
    from .serial import SerialRunner as SerialRunner
    from .simulated import SimulatedRunner as SimulatedRunner

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "base": ["Function", "Result", "Runner", "check_runner"],
        "dask": ["DaskRunner"],
        "serial": ["SerialRunner"],
        "simulated": ["SimulatedRunner"],
    },
)
