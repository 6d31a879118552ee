"""The rules for layouts: each is needed by the architecture that it names."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pymoo_stitch import Network
from pymoo_stitch.network import infer_layouts, layout

SIZE, CHANNELS, GRID = 32, 8, 4
LENGTH = GRID * GRID


class Small(nn.Module):
    """What an architecture does to an image of patches, with one layer of each sort to do it with."""

    def __init__(self, architecture):
        super().__init__()
        self.architecture = architecture
        self.conv, self.linear = nn.Conv2d(CHANNELS, CHANNELS, 1), nn.Linear(CHANNELS, CHANNELS)
        self.norm = nn.LayerNorm(CHANNELS)
        self.over_positions, self.over_heads = nn.Linear(LENGTH, LENGTH), nn.Linear(2, 2)
        self.over_rows, self.over_image = nn.BatchNorm1d(CHANNELS), nn.LayerNorm((CHANNELS, GRID, GRID))
        self.merge, self.token = nn.LayerNorm(4 * CHANNELS), nn.Parameter(torch.rand(1, 1, CHANNELS))

    def forward(self, x):
        return self.architecture(self, x)


def tokens(x):
    return x.flatten(2).transpose(1, 2)


def resnet(m, x):
    return F.relu(m.conv(x) + x).mean((2, 3))


def convnext(m, x):
    return x + m.linear(m.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def vit(m, x):
    x = tokens(x)
    heads = m.linear(x).reshape(-1, LENGTH, 2, CHANNELS // 2).transpose(1, 2)
    heads = F.scaled_dot_product_attention(heads, heads, heads)
    return m.linear(heads.transpose(1, 2).reshape(-1, LENGTH, CHANNELS))


def cait(m, x):
    heads = tokens(x).reshape(-1, LENGTH, 2, CHANNELS // 2).transpose(1, 2)
    return m.over_heads((heads @ heads.transpose(2, 3)).permute(0, 2, 3, 1))


def levit(m, x):
    x = m.linear(tokens(x))
    return F.relu(m.over_rows(x.flatten(0, 1)).reshape(-1, LENGTH, CHANNELS))


def swin(m, x):
    x = m.norm(x.permute(0, 2, 3, 1)).roll((1, 1), (1, 2))  # a shift ends what is known of it
    x = m.norm(x.reshape(-1, LENGTH, CHANNELS)).reshape(-1, GRID, GRID, CHANNELS)
    x = F.gelu(x).reshape(-1, LENGTH, CHANNELS)
    merged = x.reshape(-1, GRID // 2, 2, GRID // 2, 2, CHANNELS).permute(0, 1, 3, 4, 2, 5).flatten(3)
    return m.merge(merged)


def pvt(m, x):
    return m.conv(tokens(x).transpose(1, 2).reshape(-1, CHANNELS, GRID, GRID))


def mixer(m, x):
    x = tokens(x)
    return x + m.over_positions(F.gelu(m.over_positions(x.transpose(1, 2)))).transpose(1, 2)


def gmlp(m, x):
    kept, gate = m.linear(tokens(x)).chunk(2, -1)
    return kept * m.over_positions(gate.transpose(1, 2)).transpose(1, 2)


def coatnet(m, x):
    heads = m.conv(x).reshape(-1, 2, CHANNELS // 2, LENGTH)
    heads = F.scaled_dot_product_attention(heads, heads, heads)
    return m.conv(heads.reshape(-1, CHANNELS, GRID, GRID))


def mobilevit_v2(m, x):
    x = x.reshape(-1, CHANNELS, GRID // 2, 2, GRID // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return m.conv(x.reshape(-1, CHANNELS, 4, LENGTH // 4)[..., :2])


def normalised_image(m, x):
    return m.over_image(x)


def mean_token(m, x):
    x = tokens(x)
    return torch.cat([m.token.expand(x.shape[0], -1, -1), x], 1).mean(1, keepdim=True)


def exchanged(m, x):
    return x.transpose(2, 3)


ARCHITECTURES = {
    "ResNet": resnet,
    "ConvNeXt": convnext,
    "ViT": vit,
    "CaiT": cait,
    "LeViT": levit,
    "Swin": swin,
    "PVT": pvt,
    "MLP-Mixer": mixer,
    "gMLP": gmlp,
    "CoAtNet": coatnet,
    "MobileViTv2": mobilevit_v2,
    "LayerNorm over a whole image": normalised_image,
    "mean of all tokens as a token": mean_token,
    "height and width exchanged": exchanged,
}


class All(nn.Module):
    """All architectures side by side: one import takes much less time than one for each."""

    def __init__(self):
        super().__init__()
        self.embed, self.parts = nn.Conv2d(3, CHANNELS, SIZE // GRID, SIZE // GRID), nn.ModuleDict()
        for architecture in ARCHITECTURES.values():
            self.parts[architecture.__name__] = Small(architecture)

    def forward(self, x):
        x = self.embed(x)
        return torch.cat([part(x).flatten(1) for part in self.parts.values()], 1)


@pytest.fixture(scope="module")
def network():
    return Network.from_module(All().eval(), torch.rand(1, 3, SIZE, SIZE))


@pytest.mark.parametrize("rule", layout.RULES, ids=lambda rule: rule.says)
def test_each_rule_is_needed_by_the_architecture_it_names(rule, network, monkeypatch):
    def found():
        layouts = infer_layouts(network.nodes, network.input_shape)
        return {name: layout for name, layout in layouts.items() if f"{name}.".startswith(inside)}

    inside = f"parts.{ARCHITECTURES[rule.needed_by].__name__}."
    expected = found()
    monkeypatch.setattr(layout, "RULES", tuple(other for other in layout.RULES if other is not rule))
    assert found() != expected


def test_every_architecture_here_is_named_by_a_rule():
    assert {rule.needed_by for rule in layout.RULES} == set(ARCHITECTURES)
