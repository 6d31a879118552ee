"""Stitch trained neural networks into a supernet and search it with pymoo.

    torch modules → network → stitches → supernet → fitting → problem (with a task) → algorithms ⇄ evaluations ⇄ runners
    a .pt2 or .onnx file ← supernet ← report ← problem, and the journal, which evaluations write

The most used names can be imported from here. Each package says in a few lines what comes in and what goes out;
docs/architecture.md says how they fit together, docs/references.md which papers the tags [G], [T], [SN] and [SF] stand
for.
"""

from typing import TYPE_CHECKING

from .util.lazy import lazy

__version__ = "0.2.0.dev4"

if TYPE_CHECKING:
    from .evaluations import Evaluations as Evaluations
    from .evaluations import Journal as Journal
    from .evaluations import JournalError as JournalError
    from .families import Family as Family
    from .families import Switchable as Switchable
    from .fragments import ChainSpace as ChainSpace
    from .fragments import Pool as Pool
    from .fragments import compose as compose
    from .fragments import search_chains as search_chains
    from .network import Layout as Layout
    from .network import Network as Network
    from .network import Tap as Tap
    from .problem import StitchProblem as StitchProblem
    from .problems import get_problem as get_problem
    from .report import Comparison as Comparison
    from .report import Report as Report
    from .report import Run as Run
    from .report import compare as compare
    from .runners import DaskRunner as DaskRunner
    from .stitches import CKA as CKA
    from .stitches import KINDS as KINDS
    from .stitches import Kind as Kind
    from .stitches import Link as Link
    from .stitches import Matching as Matching
    from .stitches import match as match
    from .supernet import Cascade as Cascade
    from .supernet import Space as Space
    from .supernet import Subnetwork as Subnetwork
    from .supernet import Supernet as Supernet
    from .supernet import read_about as read_about
    from .task import METRICS as METRICS
    from .task import ClassMap as ClassMap
    from .task import Engine as Engine
    from .task import LinearProbe as LinearProbe
    from .task import NearestNeighbours as NearestNeighbours
    from .task import Task as Task

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "evaluations": ["Evaluations", "Journal", "JournalError"],
        "families": ["Family", "Switchable"],
        "fragments": ["ChainSpace", "Pool", "compose", "search_chains"],
        "network": ["Layout", "Network", "Tap"],
        "problem": ["StitchProblem"],
        "problems": ["get_problem"],
        "report": ["Comparison", "Report", "Run", "compare"],
        "runners": ["DaskRunner"],
        "stitches": ["CKA", "KINDS", "Kind", "Link", "Matching", "match"],
        "supernet": ["Cascade", "Space", "Subnetwork", "Supernet", "read_about"],
        "task": ["METRICS", "ClassMap", "Engine", "LinearProbe", "NearestNeighbours", "Task"],
    },
)
