"""What stands between an algorithm and a runner.

In: individuals that an algorithm proposes. Out: their results, each subnetwork's once: from the journal of the same
run, from those of others, or from a runner; if the run has a journal, on disk before the algorithm sees them. A runner
gets `Evaluate(problem)`, and knows nothing else of the problem.

May import: `util`, `runners`.

Does not import torch.
"""

from .budget import RunTime, budget_of, is_over, max_evals
from .description import differences, identity, problem_differences
from .evaluate import Evaluate
from .evaluations import Evaluations, is_bounded
from .interrupts import HeldInterrupt, end_interrupted
from .journal import Journal, JournalError, Row, covered, write_genotype
from .progress import hypervolume

__all__ = [
    "Evaluate",
    "Evaluations",
    "HeldInterrupt",
    "Journal",
    "JournalError",
    "Row",
    "RunTime",
    "budget_of",
    "covered",
    "differences",
    "end_interrupted",
    "hypervolume",
    "identity",
    "is_bounded",
    "is_over",
    "max_evals",
    "problem_differences",
    "write_genotype",
]
