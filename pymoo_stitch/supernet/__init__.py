"""What a genotype selects.

In: networks and links. Out: a `Supernet`, the first of the spaces that genotypes select from (`Space`), and its
`Subnetwork`s with their keys, costs, modules and files; and `Cascade`s of them.

May import: `util`, `network`, `stitches`.
"""

from .cascade import Cascade, top_probability
from .export import check_path, read_about
from .fit_report import FitReport
from .sharing import JointCosts, Sharing
from .space import Outline, Space, check_genotype
from .storage import Contents, digest_contents, structure
from .subnetwork import Step, Subnetwork, key
from .supernet import Supernet

__all__ = [
    "Cascade",
    "Contents",
    "FitReport",
    "JointCosts",
    "Outline",
    "Sharing",
    "Space",
    "Step",
    "Subnetwork",
    "Supernet",
    "check_genotype",
    "check_path",
    "digest_contents",
    "key",
    "read_about",
    "structure",
    "top_probability",
]
