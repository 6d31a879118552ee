"""The operators a graph may use: an allow-list, since a graph may come from an untrusted file."""

import operator
from collections.abc import Callable
from typing import Any

import torch

GETITEM = "getitem"
"""The only operator that is not torch's: one of several tensors."""

_VIEWS = """
    alias.default chunk.default detach.default expand.default expand_as.default narrow.default permute.default
    select.int slice.Tensor split.Tensor split_with_sizes.default squeeze.default squeeze.dim squeeze.dims t.default
    transpose.int unbind.int unfold.default unsqueeze.default
"""
_VIEWS_OR_COPIES = """
    _to_copy.default _unsafe_view.default clone.default contiguous.default dropout.default flatten.using_ints
    lift_fresh_copy.default reshape.default to.dtype type_as.default view.default
"""
_ARRANGING = """
    cat.default channel_shuffle.default col2im.default constant_pad_nd.default copy.default flip.default
    gather.default im2col.default index.Tensor index_select.default pad.default pixel_shuffle.default
    pixel_unshuffle.default reflection_pad2d.default repeat.default repeat_interleave.self_int
    replication_pad2d.default roll.default select_scatter.default slice_scatter.default stack.default tile.default
    topk.default tril.default triu.default
"""
_PRODUCTS = """
    addmm.default baddbmm.default bmm.default conv1d.default conv2d.default conv2d.padding conv3d.default
    conv_transpose2d.input convolution.default einsum.default embedding.default linear.default matmul.default
    mm.default scaled_dot_product_attention.default
"""
_NORMS_AND_POOLING = """
    _adaptive_avg_pool2d.default _upsample_bicubic2d_aa.vec _upsample_bilinear2d_aa.vec adaptive_avg_pool1d.default
    adaptive_avg_pool2d.default adaptive_max_pool2d.default avg_pool1d.default avg_pool2d.default batch_norm.default
    grid_sampler.default grid_sampler_2d.default group_norm.default instance_norm.default layer_norm.default
    max_pool1d.default max_pool2d.default max_pool2d_with_indices.default native_group_norm.default
    native_layer_norm.default rms_norm.default upsample_bicubic2d.vec upsample_bilinear2d.vec upsample_nearest2d.vec
"""
_ACTIVATIONS = """
    _log_softmax.default _safe_softmax.default _softmax.default celu.default elu.default gelu.default glu.default
    hardsigmoid.default hardswish.default hardtanh.default leaky_relu.default log_sigmoid.default log_softmax.int
    mish.default prelu.default relu.default relu6.default selu.default sigmoid.default silu.default softmax.int
    softplus.default tanh.default
"""
_ARITHMETIC = """
    abs.default add.Scalar add.Tensor addcmul.default bitwise_and.Tensor bitwise_not.default bitwise_or.Tensor
    clamp.default clamp.Tensor clamp_max.default clamp_min.default cos.default cumsum.default div.Scalar div.Tensor
    div.Tensor_mode eq.Scalar eq.Tensor erf.default exp.default floor.default floor_divide.default fmod.Scalar
    ge.Scalar gt.Scalar le.Scalar log.default log1p.default logical_and.default logical_not.default lt.Scalar
    masked_fill.Scalar maximum.default minimum.default mul.Scalar mul.Tensor ne.Scalar neg.default pow.Scalar
    pow.Tensor_Scalar pow.Tensor_Tensor reciprocal.default remainder.Scalar round.default rsqrt.default rsub.Scalar
    sign.default sin.default sqrt.default square.default sub.Scalar sub.Tensor where.self
"""
_REDUCTIONS = """
    amax.default amin.default argmax.default linalg_vector_norm.default logsumexp.default max.default max.dim
    mean.default mean.dim min.dim prod.dim_int std.correction sum.default sum.dim_IntList var.correction
    var_mean.correction
"""
_CONSTANTS = """
    arange.default arange.start arange.start_step fill.Scalar full.default full_like.default linspace.default
    meshgrid.indexing new_ones.default new_zeros.default ones.default ones_like.default scalar_tensor.default
    zeros.default zeros_like.default
"""
_LISTS = (
    _VIEWS,
    _VIEWS_OR_COPIES,
    _ARRANGING,
    _PRODUCTS,
    _NORMS_AND_POOLING,
    _ACTIVATIONS,
    _ARITHMETIC,
    _REDUCTIONS,
    _CONSTANTS,
)
OPERATORS = {GETITEM} | {f"aten.{name}" for names in _LISTS for name in names.split()}
"""The names a graph may use. All are pure functions of their arguments: none reads or writes a file, draws a random
number, or changes a tensor. A network that needs another pure one: `OPERATORS.add("aten.name.overload")`, before
importing it and before loading a file that holds it. Multiply-adds of an operator that `torch.utils.flop_counter` does
not know are counted as 0."""

_ALIASES = {f"aten.{name}" for names in (_VIEWS, _VIEWS_OR_COPIES) for name in names.split()}

VIEWS = {GETITEM} | {f"aten.{name}" for name in _VIEWS.split()}
"""Those that never copy: their result lives in the memory of what they read."""

IN_PLACE = {
    f"aten.{name}" for name in "add.Tensor hardswish.default hardtanh.default relu.default silu.default".split()
}
"""Those that may write over their first input, if it is `FRESH` and nothing else reads it."""

FRESH = {
    f"aten.{name}"
    for name in "add.Tensor batch_norm.default conv2d.default conv2d.padding linear.default sub.Tensor".split()
}
"""Those that make a new tensor which their own gradient does not need."""


def lookup(op: str) -> Callable[..., Any]:
    """The function behind an operator's name; raises a ValueError for a name that is not allowed. Views become
    operators that also take a tensor with another memory layout than in its network: after a stitch, channels may be
    last."""
    if op == GETITEM:
        return operator.getitem
    if op not in OPERATORS:
        raise ValueError(
            f"operator {op!r} is not among those a graph may use. If it is a pure function of its arguments, "
            f"allow it with pymoo_stitch.network.OPERATORS.add({op!r})."
        )
    namespace, name, overload = _ANY_STRIDES.get(op, op).split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


_ANY_STRIDES = {f"aten.{name}.default": "aten.reshape.default" for name in ("view", "_unsafe_view")}


def lookup_in_place(op: str) -> Callable[..., Any]:
    """The function that does what an operator of `IN_PLACE` does, and overwrites its first input."""
    _, name, overload = op.split(".")
    return getattr(getattr(torch.ops.aten, f"{name}_"), overload)


def is_alias(op: str, args: tuple[Any, ...]) -> bool:
    """Whether an operator only shows its first input's values again: a view, a copy, a padding by nothing."""
    return op in _ALIASES or (op == "aten.pad.default" and not any(args[1]))


def short_name(op: str) -> str:
    """`relu` for `aten.relu.default`."""
    return op.split(".")[1] if "." in op else op
