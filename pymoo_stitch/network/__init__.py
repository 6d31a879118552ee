"""A trained module becomes a verified graph.

In: a `torch.nn.Module` and an example of its input. Out: a `Network`, nodes and weights as data, verified against the
module, and its taps, the tensors inside it that a stitch can read or replace.

May import: `util`.
"""

from .folding import CONVOLUTIONS, as_product, fold, foldable, is_batch_norm, is_product
from .graph import (
    INPUT,
    Batch,
    Device,
    GraphBuilder,
    Node,
    Ref,
    Weight,
    for_empty_batches,
    leaves,
    mean,
    raw,
    resolver,
    run_new_modules,
    run_without_computing,
    substitute,
)
from .images import ImageLimits, are_unit_images, as_floats
from .importing import ENSEMBLE, Normalization, Trained, first_lines, quiet, unique_name
from .joining import check_networks, import_networks
from .layout import Layout, infer_layouts, permutation
from .network import Network, Tap
from .operators import (
    FRESH,
    IN_PLACE,
    OPERATORS,
    VIEWS,
    is_alias,
    lookup,
    lookup_in_place,
    short_name,
)
from .running import output_of, outputs_of

__all__ = [
    "CONVOLUTIONS",
    "ENSEMBLE",
    "FRESH",
    "INPUT",
    "IN_PLACE",
    "OPERATORS",
    "VIEWS",
    "Batch",
    "Device",
    "GraphBuilder",
    "ImageLimits",
    "Layout",
    "Network",
    "Node",
    "Normalization",
    "Ref",
    "Tap",
    "Trained",
    "Weight",
    "are_unit_images",
    "as_floats",
    "as_product",
    "check_networks",
    "first_lines",
    "fold",
    "foldable",
    "for_empty_batches",
    "import_networks",
    "infer_layouts",
    "is_alias",
    "is_batch_norm",
    "is_product",
    "leaves",
    "lookup",
    "lookup_in_place",
    "mean",
    "output_of",
    "outputs_of",
    "permutation",
    "quiet",
    "raw",
    "resolver",
    "run_new_modules",
    "run_without_computing",
    "short_name",
    "substitute",
    "unique_name",
]
