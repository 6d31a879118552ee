"""Fragments: where networks are cut, and that the parts are the whole."""

import networkx as nx
import pytest
import torch
import torchvision
from conftest import IMAGE, imported
from torch import nn

from pymoo_stitch import Layout, Network
from pymoo_stitch.fragments import fragments, fusible_cuts
from pymoo_stitch.network import INPUT, lookup, outputs_of, resolver, substitute

PUBLISHED = {"alexnet": 8, "densenet121": 5, "mobilenet_v3_small": 13, "resnet50": 6, "vgg16": 16}
SAME_RULE = {"resnet18": 5, "resnet152": 6, "resnext50_32x4d": 6, "mobilenet_v2": 16, "efficientnet_b0": 16}
PARAMETERS = {"resnet50": 25_530_472, "densenet121": 8_040_040, "mobilenet_v3_small": 2_536_800}
QUICK = {"resnet18"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PUBLISHED | SAME_RULE]
)
def test_real_networks_have_as_many_fragments_and_parameters_as_published(name):
    module = getattr(torchvision.models, name)(weights=None)
    network = Network.from_module(module, torch.rand(1, 3, 224, 224), name=name)
    found = fragments(network)
    assert len(found) == (PUBLISHED | SAME_RULE)[name]
    assert sum(fragment.cost for fragment in found) == network.cost
    if name in PARAMETERS:
        assert sum(fragment.parameters for fragment in found) == PARAMETERS[name]


class Branches(nn.Module):
    """Tensors that all pass through and that are no cuts all the same: before groups, with readers of two sorts, and
    the input. Cuts: before a convolution and its shortcut, after a dropout, and a flattened vector."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.main, self.shortcut = nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 6, 1)
        self.residual = nn.Conv2d(6, 6, 1)
        self.groups = nn.Conv2d(6, 6, 3, groups=3)
        self.dropout, self.pointwise = nn.Dropout2d(), nn.Conv2d(6, 4, 1)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x):
        x = self.stem(x).relu()
        x = (self.main(x) + self.shortcut(x)).relu()
        x = (x + self.residual(x)).relu()
        x = self.groups(x).relu()
        x = self.pointwise(self.dropout(x)).relu()
        return self.head(nn.functional.dropout(x.flatten(1), training=False))


@pytest.fixture(scope="module")
def branches():
    return imported(Branches, "branches")


def test_cuts_are_where_a_map_of_channels_can_be_fused_into_what_reads(branches):
    found = fusible_cuts(branches)
    assert [(tap.layout, tap.shape) for tap in found] == [
        (Layout.IMAGE, (4, 8, 8)),
        (Layout.IMAGE, (6, 6, 6)),
        (Layout.VECTOR, (144,)),
    ]


@pytest.mark.parametrize("name", ["branches", "residual", "gated", "mixer", "deep"])
def test_a_path_that_avoids_a_cut_does_not_exist(name, request):
    network = request.getfixturevalue(name)
    graph = nx.DiGraph((source, node.name) for node in network.nodes for source in node.inputs())
    assert nx.has_path(graph, INPUT, network.output)
    for tap in fusible_cuts(network):
        without = graph.copy()
        without.remove_node(tap.name)
        assert not nx.has_path(without, INPUT, network.output)


@pytest.mark.parametrize("name", ["branches", "residual", "gated", "mixer", "deep"])
def test_fragments_one_after_another_are_the_network(name, request, images):
    network = request.getfixturevalue(name)
    found = fragments(network)
    assert found[0].is_start
    assert found[-1].is_end
    assert [fragment.number for fragment in found] == list(range(len(found)))
    tensor = images
    for fragment in found:
        made = {INPUT if fragment.first is None else fragment.first.name: tensor}
        resolve = resolver(made.__getitem__, network.weights.__getitem__, lambda m: m * len(images), images.device)
        for node in fragment.nodes:
            made[node.name] = lookup(node.op)(*substitute(node.args, resolve), **substitute(node.kwargs, resolve))
        tensor = made[fragment.nodes[-1].name]
    assert torch.equal(tensor, dict(outputs_of(network, images))[network.output])


def test_normalisation_of_the_input_is_no_fragment():
    plain, normalised = (
        Network.from_module(Branches(), torch.rand(1, *IMAGE), name="branches", normalize=normalize)
        for normalize in (None, ((0.5,) * 3, (0.2,) * 3))
    )
    assert [tap.name for tap in fusible_cuts(plain)] == [tap.name for tap in fusible_cuts(normalised)]
    parameters = [[f.parameters for f in fragments(network)] for network in (plain, normalised)]
    assert parameters[0] == parameters[1]
    assert sum(parameters[0]) == plain.n_parameters


def test_tokens_are_cut_nowhere_but_before_the_head(mixer):
    """The residual stream goes round all layers in between."""
    assert [tap.layout for tap in fusible_cuts(mixer)] == [Layout.VECTOR]


def test_a_network_without_a_cut_is_one_fragment():
    (fragment,) = fragments(imported(lambda: nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()), "single"))
    assert fragment.is_start
    assert fragment.is_end
