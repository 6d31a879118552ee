"""Exported programs without in-place operations: a stitch must not read a tensor that is overwritten later."""

import operator

import torch
from torch import fx

aten = torch.ops.aten


def _overloads(names: str) -> set[torch._ops.OpOverload]:
    pairs = (name.split(".") for name in names.split())
    return {getattr(getattr(aten, operator), overload) for operator, overload in pairs}


_UNCHANGED = _overloads("""
    abs.default addcmul.default adaptive_avg_pool2d.default add.Scalar add.Tensor avg_pool2d.default bmm.default
    cat.default clamp.default conv1d.default conv2d.default conv2d.padding div.Scalar div.Tensor elu.default
    exp.default gelu.default group_norm.default index.Tensor hardsigmoid.default hardswish.default
    hardtanh.default layer_norm.default leaky_relu.default linear.default matmul.default max_pool2d.default
    mean.dim mul.Scalar mul.Tensor neg.default pad.default pow.Tensor_Scalar relu.default roll.default
    scaled_dot_product_attention.default sigmoid.default silu.default softmax.int softplus.default sqrt.default
    stack.default sub.Scalar sub.Tensor sum.dim_IntList tanh.default upsample_bilinear2d.vec
    upsample_nearest2d.vec
""")
_VIEWS = _overloads(
    "expand.default permute.default select.int slice.Tensor split.Tensor split_with_sizes.default squeeze.dim "
    "transpose.int unbind.int unsqueeze.default view.default"
) | {operator.getitem}
_IN_PLACE = {
    getattr(getattr(aten, f"{operator}_"), overload): getattr(getattr(aten, operator), overload)
    for operator, overload in (
        ("add", "Tensor"),
        ("div", "Tensor"),
        ("elu", "default"),
        ("hardsigmoid", "default"),
        ("hardswish", "default"),
        ("hardtanh", "default"),
        ("leaky_relu", "default"),
        ("mul", "Tensor"),
        ("relu", "default"),
        ("sigmoid", "default"),
        ("silu", "default"),
        ("sub", "Tensor"),
        ("tanh", "default"),
    )
}
_RESHAPING = {aten.flatten.using_ints, aten.reshape.default}
_SIZES = {aten.sym_size.int, operator.mul, operator.add, operator.sub, operator.floordiv}


def make_functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with functional operations instead of in-place ones, and nothing else decomposed.

    `run_decompositions({})` is how torch does it: it traces the program again, in which most of an import's time would
    go. Programs of few and common operators, which most networks are, are rewritten here instead, to the same graph.
    """
    if not _is_simple(program.graph):
        return program.run_decompositions({})
    _rewrite(program.graph)
    return program


def _is_simple(graph: fx.Graph) -> bool:
    """Whether `_rewrite` can do it: all operators are known, and what is overwritten was made in the graph, and has no
    views, before or after: torch makes such views again where they are read."""
    makers: dict[fx.Node, fx.Node] = {}  # of the memory in which a node's values are
    viewed, overwritten = set(), set()
    for node in graph.nodes:
        makers[node] = node
        if node.op == "placeholder":
            viewed.add(node)
        elif node.op == "call_function":
            if node.target in _IN_PLACE:
                if not _is_plain(node):
                    return False
                makers[node] = makers[node.args[0]]
                overwritten.add(makers[node])
            elif _shows_its_input(node):
                makers[node] = makers[node.args[0]]
            elif node.target in _VIEWS or _becomes_view(node):
                makers[node] = makers[node.args[0]]
                viewed.add(makers[node])
            elif not (node.target in _UNCHANGED or node.target in _SIZES or _is_evaluated_batch_norm(node)):
                return False
        elif node.op != "output":
            return False
    return viewed.isdisjoint(overwritten)


def _is_plain(node: fx.Node) -> bool:
    """Whether an in-place operation's result has the type and strides of the functional one's."""
    tensors = [i.meta["val"] for i in node.all_input_nodes if isinstance(i.meta["val"], torch.Tensor)]
    return all(tensor.dtype == node.meta["val"].dtype and tensor.is_contiguous() for tensor in tensors)


def _shows_its_input(node: fx.Node) -> bool:
    """Whether a call returns its input itself: dropout that does nothing, a flattening of one dimension."""
    if node.target in (aten.dropout.default, aten.dropout_.default):
        return not node.args[2]
    flattens = node.target is aten.flatten.using_ints
    return flattens and node.meta["val"].ndim == node.all_input_nodes[0].meta["val"].ndim > 0


def _becomes_view(node: fx.Node) -> bool:
    return node.target in _RESHAPING and node.all_input_nodes[0].meta["val"].is_contiguous()


def _is_evaluated_batch_norm(node: fx.Node) -> bool:
    return node.target is aten.batch_norm.default and not node.args[5]


def _rewrite(graph: fx.Graph) -> None:
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _shows_its_input(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is aten.reshape.default:
            node.target = aten.view.default
        elif node.target is aten.flatten.using_ints:
            node.target, node.args = aten.view.default, (node.args[0], list(node.meta["val"].shape))
        elif node.target in _IN_PLACE:
            node.target = _IN_PLACE[node.target]
            node.args[0].replace_all_uses_with(node, lambda user, now=order[node]: order[user] > now)
    graph.eliminate_dead_code()
