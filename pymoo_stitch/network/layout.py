"""How a tensor inside a network is arranged, found by following the layout of the input image through the graph."""

import math
from collections.abc import Iterable
from enum import Enum

from .graph import INPUT, Batch, Node, Weight
from .operators import GETITEM, is_alias, short_name


class Layout(Enum):
    """The arrangements a stitch knows how to read and write. B batch, C channels, H height, W width, L length."""

    IMAGE = "image"  # B C H W
    IMAGE_LAST = "image-last"  # B H W C
    TOKENS = "tokens"  # B L C
    CLASS_TOKENS = "tokens with class token"  # B L C, the positions of an image behind one or more tokens that are none
    VECTOR = "vector"  # B C

    def channels(self, shape: tuple[int, ...]) -> int:
        return shape[0] if self is Layout.IMAGE else shape[-1]

    def positions(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes that are not channels: (H, W), (L,) or ()."""
        return shape[1:] if self is Layout.IMAGE else shape[:-1]

    def grid(self, shape: tuple[int, ...], image_size: tuple[int, int] | None) -> tuple[int, int] | None:
        """Height and width of the positions; None where they are no image."""
        if self in (Layout.IMAGE, Layout.IMAGE_LAST):
            return self.positions(shape)
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
    ROWS = "tokens with all samples behind one another: B·L C"
    OTHER = "certainly none of the known ones: attention maps and what is computed from them"


def infer_layouts(nodes: Iterable[Node], input_shape: tuple[int, ...]) -> dict[str, Layout]:
    """The layout of each node that has one, by name. What is not certain is left out: attention maps, queries and
    keys look like images and are none."""
    nodes = list(nodes)
    shapes = {node.name: node.sample_shape for node in nodes} | {INPUT: input_shape}
    follow = _Follower(input_shape, shapes)
    for node in nodes:
        follow(node)
    return {n.name: follow.layouts[n.name] for n in nodes if n.shape and isinstance(follow.layouts[n.name], Layout)}


_ON_IMAGES = set(
    """
    _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d batch_norm channel_shuffle col2im conv2d
    conv_transpose2d convolution grid_sampler grid_sampler_2d group_norm instance_norm max_pool2d max_pool2d_with_indices
    native_group_norm pixel_shuffle pixel_unshuffle reflection_pad2d replication_pad2d upsample_bicubic2d
    upsample_bilinear2d upsample_nearest2d
    """.split()
)
_ON_LAST = set("linear layer_norm native_layer_norm rms_norm".split())
_MIXING = set("_safe_softmax _softmax baddbmm bmm einsum matmul mm roll scaled_dot_product_attention softmax".split())
_REDUCTIONS = set("amax amin linalg_vector_norm logsumexp max mean min prod std sum var".split())


class _Follower:
    """Walks the nodes in order and writes down the layout of each."""

    def __init__(self, input_shape: tuple[int, ...], shapes: dict[str, tuple[int, ...] | None]):
        self.image_size = input_shape[-2:] if len(input_shape) == 3 else None
        self.shapes = shapes
        first = {1: Layout.VECTOR, 2: self._tokens(input_shape), 3: Layout.IMAGE}.get(len(input_shape), _Inner.OTHER)
        self.layouts: dict[str, Layout | _Inner | None] = {INPUT: first}
        self._lengths: dict[str, int | Batch] = {}

    def __call__(self, node: Node) -> None:
        shape = node.sample_shape
        if shape is None and node.shape is not None:
            layout = self._folded(node)
        elif len(shape or ()) == 1:
            layout = Layout.VECTOR
        else:
            layout = self._layout(node, shape)
        self.layouts[node.name] = layout

    def _folded(self, node: Node) -> _Inner | None:
        """The batch is folded into another dimension: rows of tokens, or windows, or nothing of the batch at all."""
        sources = [self.layouts.get(name) for name in node.inputs()]
        if len(node.shape) != 2 or not sources:
            return None
        from_tokens = is_alias(node.op, node.args) and sources[0] in (Layout.TOKENS, Layout.CLASS_TOKENS)
        self._lengths[node.name] = node.shape[0]
        return _Inner.ROWS if from_tokens or sources[0] is _Inner.ROWS else None

    def _layout(self, node: Node, shape: tuple[int, ...] | None) -> Layout | _Inner | None:
        sources = node.inputs()
        if not sources:  # made of weights alone: a class token, a table of positions
            return None
        source = self.layouts.get(sources[0])
        if node.op == GETITEM:
            return self._view(source, self.shapes[sources[0]], shape, node)
        name = short_name(node.op)
        if shape is None:  # several tensors: getitem decides with the shape before the split
            self.shapes[node.name] = self.shapes.get(sources[0]) if is_alias(node.op, node.args) else None
            return source
        rank = len(shape)
        if name in _ON_IMAGES:
            unknown = source in (None, _Inner.SHUFFLED)
            if source is _Inner.OTHER or (unknown and rank == 3 and not _is_grid(*shape[1:], self.image_size)):
                return _Inner.OTHER  # a convolution over attention maps or unfolded patches
            return {2: _Inner.CHANNELS_LENGTH, 3: Layout.IMAGE}.get(rank)
        if name in _ON_LAST or (name == "matmul" and isinstance(node.args[1], Weight)):
            return self._on_last(source, self.shapes.get(sources[0]), shape, name)
        if name in _MIXING:
            return _Inner.OTHER
        if name in _REDUCTIONS:
            return source if self.shapes.get(sources[0]) is not None and len(self.shapes[sources[0]]) == rank else None
        if source is _Inner.ROWS:
            length = self._lengths[sources[0]]
            unfolds = is_alias(node.op, node.args) and rank == 2 and length == Batch(shape[0])
            return self._tokens(shape) if unfolds else None
        if is_alias(node.op, node.args):
            return self._view(source, self.shapes.get(sources[0]), shape, node)
        return self._elementwise(sources, shape)

    def _on_last(self, source, source_shape, shape, name):
        if source in (Layout.IMAGE_LAST, Layout.TOKENS, Layout.CLASS_TOKENS):
            return source
        if source not in (None, _Inner.SHUFFLED):
            return source if source_shape == shape and name != "linear" else _Inner.OTHER
        if len(shape) == 2:  # back from attention, or rearranged into whatever order
            return self._tokens(shape) if source is None else _Inner.OTHER
        return Layout.IMAGE_LAST if len(shape) == 3 and _is_grid(*shape[:2], self.image_size) else _Inner.OTHER

    def _elementwise(self, sources, shape):
        """Sums, activations, concatenations: as the input that has the same shape, else as one of the same rank."""
        known = [(self.layouts.get(s), self.shapes.get(s)) for s in sources]
        alike = [layout for layout, s in known if s == shape] + [
            layout for layout, s in known if s is not None and len(s) == len(shape)
        ]
        certain = [layout for layout in alike if isinstance(layout, Layout)]
        layout = certain[0] if certain else next((layout for layout in alike if layout is not None), None)
        return self._tokens(shape) if layout in (Layout.TOKENS, Layout.CLASS_TOKENS) else layout

    def _view(self, source, source_shape, shape, node):
        if source_shape is None or shape is None:
            return None
        lost = {None: None, _Inner.OTHER: None}.get(source, _Inner.SHUFFLED)
        if node.op.startswith(("aten.permute", "aten.transpose", "aten.t.")):
            return _PERMUTED.get((source, permutation(node)), source if source is _Inner.OTHER else lost)
        changed = sum(a != b for a, b in zip(shape, source_shape, strict=False))
        if len(shape) == len(source_shape) and changed <= 1:  # the same, or one dimension cut
            return self._tokens(shape) if source in (Layout.TOKENS, Layout.CLASS_TOKENS) else source
        match source:
            case Layout.IMAGE if shape == (source_shape[0], source_shape[1] * source_shape[2]):
                return _Inner.CHANNELS_LENGTH
            case Layout.IMAGE_LAST if shape == (source_shape[0] * source_shape[1], source_shape[2]):
                return Layout.TOKENS
            case _Inner.CHANNELS_LENGTH if len(shape) == 3 and shape[0] == source_shape[0]:
                return Layout.IMAGE if _is_grid(*shape[1:], self.image_size) else lost
            case Layout.TOKENS if len(shape) == 3 and shape[2] == source_shape[1]:
                return Layout.IMAGE_LAST if _is_grid(*shape[:2], self.image_size) else lost
        return lost

    def _tokens(self, shape: tuple[int, ...]) -> Layout:
        """Plain tokens, or with a class token where only the rest has the proportions of the image."""
        plain = Layout.TOKENS.grid(shape, self.image_size) or not Layout.CLASS_TOKENS.grid(shape, self.image_size)
        return Layout.TOKENS if plain else Layout.CLASS_TOKENS


_PERMUTED = {
    (Layout.IMAGE, (0, 2, 3, 1)): Layout.IMAGE_LAST,
    (Layout.IMAGE_LAST, (0, 3, 1, 2)): Layout.IMAGE,
    (_Inner.CHANNELS_LENGTH, (0, 2, 1)): Layout.TOKENS,
    (Layout.TOKENS, (0, 2, 1)): _Inner.CHANNELS_LENGTH,
    (Layout.CLASS_TOKENS, (0, 2, 1)): _Inner.CHANNELS_LENGTH,
}


def permutation(node: Node) -> tuple[int, ...]:
    rank = len(node.shape)
    if node.op.startswith("aten.permute"):
        return tuple(d % rank for d in node.args[1])
    order = list(range(rank))
    first, second = (d % rank for d in node.args[1:3]) if len(node.args) > 2 else (rank - 2, rank - 1)
    order[first], order[second] = second, first
    return tuple(order)
