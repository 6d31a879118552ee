"""Stitches get their weights.

In: a supernet and images. Out: stitches with weights, and a `FitReport` (of `supernet`, which saves it with them) with
their errors on images kept back. To *fit* is to make each stitch reproduce the tensor that it replaces; to *finetune*
is to train all of them together, in subnetworks; to *retrain* is to train those of one subnetwork, as copies; to
*recalibrate* is to compute the statistics of its batch norms again, as copies.

May import: `util`, `network`, `stitches`, `supernet`.
"""

from ..supernet import FitReport
from .execution import Execution
from .least_squares import least_squares
from .methods import METHODS, fit
from .recalibration import Recalibration, recalibrate
from .restoring import adapter_of
from .samples import source_rows, target_rows
from .solving import solve_factors, solve_rows
from .training import adam, finetune, retrain

__all__ = [
    "METHODS",
    "Execution",
    "FitReport",
    "Recalibration",
    "adam",
    "adapter_of",
    "finetune",
    "fit",
    "least_squares",
    "recalibrate",
    "retrain",
    "solve_factors",
    "solve_rows",
    "source_rows",
    "target_rows",
]
