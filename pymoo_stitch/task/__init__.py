"""Data and metrics, and what subnetworks predict on them.

In: images with labels (`data` reads them from folders), and subnetworks. Out: a `Task` with its splits, metrics and
head, and from the `Engine` the metrics of many subnetworks, computed together; `cascading` scores cascades of them.

May import: `util`, `network`, `supernet`.
"""

from .engine import Engine, Outcome
from .heads import ClassMap, Head, LinearProbe, NearestNeighbours
from .metrics import METRICS, Metric, reliability
from .split import Split
from .task import Task

__all__ = [
    "METRICS",
    "ClassMap",
    "Engine",
    "Head",
    "LinearProbe",
    "Metric",
    "NearestNeighbours",
    "Outcome",
    "Split",
    "Task",
    "reliability",
]
