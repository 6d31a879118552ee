"""Stitches get their weights.

In: a supernet and images. Out: stitches with weights, and a `FitReport` with their errors on images kept back. To *fit* is to
make each stitch give the tensor that it stands for; to *finetune* is to train all of them together, in subnetworks; to
*retrain* is to train those of one subnetwork, as copies; to *recalibrate* is to compute the statistics of its batch norms
again, as copies.

May import: `network`, `stitches`, `supernet`.
"""

from .execution import Execution
from .least_squares import adapter_of, least_squares, source_rows, target_rows
from .methods import METHODS, fit
from .recalibration import Recalibration, recalibrate
from .report import FitReport
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
