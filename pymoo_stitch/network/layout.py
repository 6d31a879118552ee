"""How a tensor inside a network is arranged, found by following the layout of the input image through the graph."""

import math
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from .graph import INPUT, Batch, Node, Weight
from .operators import GETITEM, is_alias, short_name


class Layout(Enum):
    """The arrangements a stitch knows how to read and write. B batch, C channels, H height, W width, L length."""

    IMAGE = "image"  # B C H W
    IMAGE_LAST = "image-last"  # B H W C
    TOKENS = "tokens"  # B L C
    # B L C, one or more tokens without a position, then the positions of an image
    CLASS_TOKENS = "tokens with class token"
    VECTOR = "vector"  # B C

    def channels(self, shape: tuple[int, ...]) -> int:
        return shape[0] if self is Layout.IMAGE else shape[-1]

    def positions(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes that are not channels: (H, W), (L,) or ()."""
        return shape[1:] if self is Layout.IMAGE else shape[:-1]

    def grid(self, shape: tuple[int, ...], image_size: tuple[int, int] | None) -> tuple[int, int] | None:
        """Height and width of the positions; None where they are no image."""
        if self in (Layout.IMAGE, Layout.IMAGE_LAST):
            height, width = self.positions(shape)
            return height, width
        if self is Layout.VECTOR or image_size is None:
            return None
        extras = range(1) if self is Layout.TOKENS else range(1, _MOST_CLASS_TOKENS + 1)
        return next((grid for extra in extras if (grid := _grid(shape[0] - extra, image_size))), None)

    def __str__(self) -> str:
        return self.value


_MOST_CLASS_TOKENS = 8


def _grid(length: int, image_size: tuple[int, int]) -> tuple[int, int] | None:
    """The height and width with that many positions that are nearest to the image's proportions, if any is near."""
    height, width = image_size
    near = round(math.sqrt(max(length, 0) * height / width))
    grids = [(h, length // h) for h in range(max(near - 2, 1), near + 3) if length % h == 0]
    grids = [grid for grid in grids if _is_grid(*grid, image_size)]
    return min(grids, key=lambda grid: abs(grid[0] * width - grid[1] * height), default=None)


def _is_grid(h: int, w: int, image_size: tuple[int, int] | None) -> bool:
    """Whether h × w can be the input image made smaller, up to the rounding of one position."""
    if image_size is None:
        return False
    height, width = image_size
    return abs(h * width - w * height) <= max(height, width)


class _Inner(Enum):
    """Arrangements that are followed but cannot be stitched."""

    CHANNELS_LENGTH = "B C L"
    SHUFFLED = "positions or channels rearranged by views: windows, heads, pixels of patches"
    ROWS = "tokens of all samples in a row: B·L C"
    OTHER = "certainly none of the known ones: attention maps and what is computed from them"


_Found = Layout | _Inner | None  # None: not known


def infer_layouts(nodes: Iterable[Node], input_shape: tuple[int, ...]) -> dict[str, Layout]:
    """The layout of each node that has one, by name. What is not certain is left out: attention maps, queries and keys
    look like images and are not."""
    nodes = list(nodes)
    image_size = input_shape[-2:] if len(input_shape) == 3 else None
    first = {1: Layout.VECTOR, 2: Layout.TOKENS, 3: Layout.IMAGE}.get(len(input_shape), _Inner.OTHER)
    known = {INPUT: _Tensor(first, input_shape)}
    for node in nodes:
        step = _Step(node, [known.get(name, _Tensor()) for name in node.inputs()], image_size)
        rule = next((rule for rule in RULES if rule.applies(step)), None)
        layout = rule and (rule.layout(step) if callable(rule.layout) else rule.layout)
        shape = step.source_shape if step.several and step.alias else node.sample_shape  # parts: that of the whole
        known[node.name] = _Tensor(layout, shape, node.shape)
    found = {n.name: known[n.name].layout for n in nodes if n.shape}
    return {name: layout for name, layout in found.items() if isinstance(layout, Layout)}


class _Tensor(NamedTuple):
    """What is known of a tensor that a node reads."""

    layout: _Found = None
    shape: tuple[int, ...] | None = None  # of one sample
    whole: tuple[int | Batch, ...] | None = None  # with the batch


_ON_IMAGES = set(
    """
    _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d batch_norm channel_shuffle col2im conv2d
    conv_transpose2d convolution grid_sampler grid_sampler_2d group_norm instance_norm max_pool2d
    max_pool2d_with_indices native_group_norm pixel_shuffle pixel_unshuffle reflection_pad2d replication_pad2d
    upsample_bicubic2d upsample_bilinear2d upsample_nearest2d
    """.split()
)
_ON_LAST = set("linear layer_norm native_layer_norm rms_norm".split())
_MIXING = set("_safe_softmax _softmax baddbmm bmm einsum matmul mm roll scaled_dot_product_attention softmax".split())
_REDUCTIONS = set("amax amin linalg_vector_norm logsumexp max mean min prod std sum var".split())
_OF_CONVOLUTIONS: dict[int, _Found] = {2: _Inner.CHANNELS_LENGTH, 3: Layout.IMAGE}
_TOKENS = (Layout.TOKENS, Layout.CLASS_TOKENS)
_PERMUTED: dict[tuple[_Found, tuple[int, ...]], _Found] = {
    (Layout.IMAGE, (0, 2, 3, 1)): Layout.IMAGE_LAST,
    (Layout.IMAGE_LAST, (0, 3, 1, 2)): Layout.IMAGE,
    (_Inner.CHANNELS_LENGTH, (0, 2, 1)): Layout.TOKENS,
    (Layout.TOKENS, (0, 2, 1)): _Inner.CHANNELS_LENGTH,
    (Layout.CLASS_TOKENS, (0, 2, 1)): _Inner.CHANNELS_LENGTH,
}


class _Step:
    """A node and what it reads: all that a rule looks at."""

    def __init__(self, node: Node, reads: list[_Tensor], image_size: tuple[int, int] | None):
        self.node, self.reads, self.image_size = node, reads, image_size
        self.source, self.source_shape, self.source_whole = reads[0] if reads else _Tensor()
        self.unsure = self.source in (None, _Inner.SHUFFLED)
        self.shape = node.sample_shape or ()
        self.rank = len(self.shape)
        self.same_rank = self.source_shape is not None and len(self.source_shape) == self.rank
        self.several = node.shape is None  # returns several tensors
        self.folded = not self.several and node.sample_shape is None  # no dimension is the batch and it alone
        self.alias = is_alias(node.op, node.args)
        self.shows = self.alias or node.op == GETITEM  # what it reads, or a part of it
        self.view = self.shows and self.source_shape is not None
        self.permutes = self.view and node.op.startswith(("aten.permute", "aten.transpose", "aten.t."))
        self.name = name = short_name(node.op)
        self.on_image = name in _ON_IMAGES
        self.on_last = name in _ON_LAST or (name == "matmul" and isinstance(node.args[1], Weight))

    def is_grid(self, first: int) -> bool:
        """Whether there are three dimensions, of which `first` and the next can be height and width."""
        return self.rank == 3 and _is_grid(self.shape[first], self.shape[first + 1], self.image_size)

    def makes_rows(self) -> bool:
        from_tokens = self.alias and self.source in _TOKENS
        return len(self.node.shape) == 2 and (from_tokens or self.source is _Inner.ROWS)

    def unfolds_rows(self) -> bool:
        return self.alias and self.rank == 2 and self.source_whole[0] == Batch(self.shape[0])

    def tokens(self) -> Layout:
        """Plain tokens, or with a class token where only the rest has the proportions of the image."""
        plain, behind = (layout.grid(self.shape, self.image_size) for layout in _TOKENS)
        return Layout.TOKENS if plain or not behind else Layout.CLASS_TOKENS

    def recount(self, layout: _Found) -> _Found:
        """The same layout; but among tokens, a class token may have come or gone."""
        return self.tokens() if layout in _TOKENS else layout

    def rearranged(self) -> _Found:
        """The layout after a view that does not keep it. After attention it may put the heads back in place, so
        that nothing is known."""
        known = self.source_shape is not None and self.source not in (None, _Inner.OTHER)
        return _Inner.SHUFFLED if known else None

    def alike(self, kind: type[Layout] | type[_Inner]) -> list[Layout | _Inner]:
        """Layouts of what it reads: of tensors with the shape of its output, then of those with as many dimensions."""
        same = [t.layout for t in self.reads if t.shape == self.shape]
        same += [t.layout for t in self.reads if t.shape is not None and len(t.shape) == self.rank]
        return [layout for layout in same if isinstance(layout, kind)]


class Rule(NamedTuple):
    """A node to which it `applies` has this `layout`. Without it, some layouts in the architecture `needed_by` would be
    others; where no architecture is known to need it, `needed_by` is a construction that does."""

    says: str
    needed_by: str
    applies: Callable[[_Step], bool]
    layout: _Found | Callable[[_Step], _Found]


RULES = (
    Rule(
        "a batch folded into another dimension makes rows of tokens, or is not followed",
        "LeViT",
        lambda s: s.folded,
        lambda s: _Inner.ROWS if s.makes_rows() else None,
    ),
    Rule("one dimension is a vector", "ResNet", lambda s: s.rank == 1, Layout.VECTOR),
    Rule("the parts of a tensor are as the whole", "gMLP", lambda s: s.several, lambda s: s.source),
    # ------------------------------------------------------------------------------------ convolutions and their like
    Rule(
        "a convolution over attention maps or unfolded patches does not make an image",
        "MobileViTv2",
        lambda s: s.on_image and (s.source is _Inner.OTHER or (s.unsure and s.rank == 3 and not s.is_grid(1))),
        _Inner.OTHER,
    ),
    Rule(
        "any other convolution, or a pooling, makes an image",
        "CoAtNet",
        lambda s: s.on_image,
        lambda s: _OF_CONVOLUTIONS.get(s.rank),
    ),
    # ------------------------------------------------------------------------------------------ linear layers and norms
    Rule(
        "a linear layer or a norm keeps channels that are last",
        "ViT",
        lambda s: s.on_last and s.source in (Layout.IMAGE_LAST, *_TOKENS),
        lambda s: s.source,
    ),
    Rule(
        "a norm keeps every layout",
        "LayerNorm over a whole image",  # kept: none of 55 architectures tried needs it
        lambda s: s.on_last and not s.unsure and s.source_shape == s.shape and s.name != "linear",
        lambda s: s.source,
    ),
    Rule(
        "a linear layer after attention makes tokens",
        "ViT",
        lambda s: s.on_last and s.source is None and s.rank == 2,
        _Step.tokens,
    ),
    Rule(
        "a linear layer or a norm makes an image where positions have its proportions",
        "Swin",
        lambda s: s.on_last and s.unsure and s.is_grid(0),
        Layout.IMAGE_LAST,
    ),
    Rule("any other linear layer mixes positions", "MLP-Mixer", lambda s: s.on_last, _Inner.OTHER),
    # -------------------------------------------------------------------------------------------------- other operators
    Rule("attention or a shift mixes positions", "Swin", lambda s: s.name in _MIXING, _Inner.OTHER),
    Rule(
        "a reduction keeps the layout if it keeps the dimensions",
        "mean of all tokens as a token",  # kept: none of 55 architectures tried needs it
        lambda s: s.name in _REDUCTIONS,
        lambda s: s.source if s.same_rank else None,
    ),
    Rule(
        "rows become tokens where each sample has its own again",
        "LeViT",
        lambda s: s.source is _Inner.ROWS,
        lambda s: s.tokens() if s.unfolds_rows() else None,
    ),
    # ------------------------------------------------------------------------------------------------------------ views
    Rule(
        "a permutation moves the channels",
        "ConvNeXt",
        lambda s: s.permutes and (s.source, permutation(s.node)) in _PERMUTED,
        lambda s: _PERMUTED[s.source, permutation(s.node)],
    ),
    Rule(
        "a permuted attention map is still one", "CaiT", lambda s: s.permutes and s.source is _Inner.OTHER, _Inner.OTHER
    ),
    Rule(
        "any other permutation rearranges",
        "height and width exchanged",  # kept: none of 55 architectures tried needs it
        lambda s: s.permutes,
        _Step.rearranged,
    ),
    Rule(
        "a view that changes one size at most keeps the layout",
        "gMLP",
        lambda s: s.view and s.same_rank and sum(a != b for a, b in zip(s.shape, s.source_shape, strict=True)) <= 1,
        lambda s: s.recount(s.source),
    ),
    Rule(
        "an image with one row of positions keeps channels first",
        "ViT",
        lambda s: s.view and s.source is Layout.IMAGE and s.shape == (s.source_shape[0], math.prod(s.source_shape[1:])),
        _Inner.CHANNELS_LENGTH,
    ),
    Rule(
        "one row of positions becomes an image",
        "PVT",
        lambda s: s.view and s.source is _Inner.CHANNELS_LENGTH and s.is_grid(1) and s.shape[0] == s.source_shape[0],
        Layout.IMAGE,
    ),
    Rule(
        "an image with channels last becomes tokens",
        "Swin",
        lambda s: (
            s.view and s.source is Layout.IMAGE_LAST and s.shape == (math.prod(s.source_shape[:2]), s.source_shape[2])
        ),
        Layout.TOKENS,
    ),
    Rule(
        "tokens become an image with channels last",
        "Swin",
        lambda s: s.view and s.source is Layout.TOKENS and s.is_grid(0) and s.shape[2] == s.source_shape[1],
        Layout.IMAGE_LAST,
    ),
    Rule("any other view rearranges", "CoAtNet", lambda s: s.shows, _Step.rearranged),
    # -------------------------------------------------------------------------------------------------- everything else
    Rule(
        "a sum, activation or concatenation is as what it reads",
        "ResNet",
        lambda s: bool(s.alike(Layout)),
        lambda s: s.recount(s.alike(Layout)[0]),
    ),
    Rule(
        "the same for what cannot be stitched",
        "MLP-Mixer",
        lambda s: bool(s.alike(_Inner)),
        lambda s: s.alike(_Inner)[0],
    ),
)
"""Tried in this order; the first that applies decides. Where none does, nothing is known."""


def permutation(node: Node) -> tuple[int, ...]:
    rank = len(node.shape)
    if node.op.startswith("aten.permute"):
        return tuple(d % rank for d in node.args[1])
    order = list(range(rank))
    first, second = (d % rank for d in node.args[1:3]) if len(node.args) > 2 else (rank - 2, rank - 1)
    order[first], order[second] = second, first
    return tuple(order)
