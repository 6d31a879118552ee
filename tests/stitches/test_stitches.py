"""Kinds and layouts: any kind between any two taps it can join, with the sizes and costs of the papers."""

from functools import cache

import numpy as np
import pytest
import timm
import torch
from conftest import IMAGE, Gated, Mixer, Residual, imported
from interpreter import interpret
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pymoo_stitch import KINDS, Layout, Link, Network, Supernet, Tap
from pymoo_stitch.stitches import build_stitch, working_layout
from pymoo_stitch.stitches.conversions import FromLayout, ToImage
from pymoo_stitch.stitches.link import _chain


class Last(nn.Module):
    """Channels last, and plain tokens."""

    def __init__(self, width=10):
        super().__init__()
        self.embed, self.norm, self.mlp = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width), nn.Linear(width, width)
        self.tokens, self.head = nn.Linear(width, 6), nn.Linear(6, 5)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        x = x + F.gelu(self.mlp(self.norm(x)))
        return self.head(self.tokens(x.flatten(1, 2)).mean(1))


@pytest.fixture(scope="module")
def networks():
    makers = {"residual": Residual, "gated": Gated, "mixer": Mixer, "last": Last}
    return [imported(make, name) for name, make in makers.items()]


def tensor_of(tap, batch=2):
    return torch.rand(batch, *tap.shape, generator=torch.Generator().manual_seed(0))


MAPPING = [name for name, kind in KINDS.items() if not kind.keeps]
"""The kinds that can join any number of channels with any other."""


def one_tap_of_each_shape(networks):
    taps = {(tap.layout, tap.shape): tap for network in networks for tap in network.taps}
    assert {layout for layout, _ in taps} == set(Layout)
    return list(taps.values())


@pytest.mark.parametrize("kind", MAPPING)
def test_a_stitch_gives_the_targets_shape_from_every_tap_it_can_start_from(networks, kind):
    taps, joined = one_tap_of_each_shape(networks), set()
    for source in taps:
        for target in taps:
            if working_layout(KINDS[kind], source, target):
                joined.add((source.layout, target.layout))
                stitch = build_stitch(Link(source, target, kind)).eval()
                assert stitch(tensor_of(source)).shape == (2, *target.shape)
            else:
                with pytest.raises(ValueError, match=f"a stitch of kind '{kind.replace('+', '.')}' cannot lead from"):
                    Supernet(networks, [Link(source, target, kind)])
    tokens = {Layout.TOKENS, Layout.CLASS_TOKENS}
    with_positions = tokens | {Layout.IMAGE, Layout.IMAGE_LAST}
    expected = {(a, b) for a in with_positions for b in with_positions}
    if kind == "transformer":
        expected = {(a, b) for a in tokens for b in tokens}
    if KINDS[kind].affine:
        expected |= {(a, Layout.VECTOR) for a in with_positions}
    assert joined == expected | ({(Layout.VECTOR, Layout.VECTOR)} if Layout.VECTOR in KINDS[kind].layouts else set())


@pytest.mark.parametrize("kind", ["linear", "matrix"])
def test_a_vector_is_made_of_the_mean_over_all_positions(networks, kind):
    residual, gated, mixer, last = networks
    for source in (residual.tap("stem.0"), last.tap("norm"), mixer.tap("norm")):
        stitch, tensor = build_stitch(Link(source, gated.tap("view"), kind)), tensor_of(source)
        mean = tensor.mean((2, 3)) if source.layout is Layout.IMAGE else tensor.flatten(1, -2).mean(1)
        if source.layout is Layout.CLASS_TOKENS:
            mean = torch.cat([tensor[:, 1:].mean(1), tensor[:, 0]], 1)
        torch.testing.assert_close(stitch(tensor), stitch[2](mean))
        assert (stitch[2].bias is None) is (kind == "matrix")


def test_identity_joins_equal_channels_only_and_keeps_every_value(networks):
    taps = one_tap_of_each_shape(networks)
    for source in taps:
        for target in taps:
            if working_layout(KINDS["identity"], source, target):
                assert source.channels == target.channels
                stitch, x = build_stitch(Link(source, target, "identity")), tensor_of(source)
                assert stitch(x).shape == (2, *target.shape)
                assert source.positions != target.positions or torch.equal(
                    stitch(x).flatten().sort()[0], x.flatten().sort()[0]
                )
            else:
                alike = source.layout is target.layout and source.positions == target.positions
                assert not alike or source.channels != target.channels
    assert all(working_layout(KINDS["identity"], tap, tap) for tap in taps)


def test_a_stitch_of_the_default_kind_is_one_layer_where_nothing_else_changes(networks):
    residual, gated, mixer, _ = networks
    image = build_stitch(Link(residual.tap("stem.0"), gated.tap("mul")))
    assert isinstance(image, nn.Conv2d)
    assert (image.kernel_size, image.bias is None) == ((1, 1), False)
    assert isinstance(build_stitch(Link(mixer.tap("norm"), mixer.tap("qkv"))), nn.Linear)


def test_a_class_token_is_joined_to_every_position_and_made_of_their_mean():
    tap = Tap("n", "t", Layout.CLASS_TOKENS, (2 * 3 + 1, 4), 0.5, (2, 3))
    tokens = torch.rand(5, 7, 4)
    image = ToImage(tap)(tokens)
    assert image.shape == (5, 8, 2, 3)
    assert torch.equal(image[:, :4, 1, 2], tokens[:, 6])
    assert torch.equal(image[:, 4:, 1, 2], tokens[:, 0])
    back = FromLayout(Layout.IMAGE, tap)(image[:, :4])
    assert torch.equal(back[:, 1:], tokens[:, 1:])
    torch.testing.assert_close(back[:, 0], tokens[:, 1:].mean(1))


def test_layouts_of_one_size_are_only_rearranged():
    shapes = {Layout.IMAGE: (4, 2, 3), Layout.IMAGE_LAST: (2, 3, 4), Layout.TOKENS: (6, 4)}
    taps = {layout: Tap("n", str(layout), layout, shape, 0.5, (2, 3)) for layout, shape in shapes.items()}
    image = torch.rand(5, 4, 2, 3)
    for tap in taps.values():
        assert torch.equal(ToImage(tap)(FromLayout(Layout.IMAGE, tap)(image)), image)


@pytest.mark.parametrize(
    ("channels", "sizes", "expected"),
    [
        ((256, 2048), (56, 7), [(28, 512), (14, 1024), (7, 2048)]),
        ((256, 768), (56, 7), [(28, 512), (14, 768), (7, 768)]),
        ((256, 512), (56, 28), [(28, 512)]),
        ((2048, 256), (7, 56), [(14, 1024), (28, 512), (56, 256)]),
        ((384, 256), (14, 14), [(14, 256)]),
        ((64, 40), (65, 33), [(33, 40)]),
    ],
)
def test_a_gap_is_bridged_by_one_adapter_per_scale(channels, sizes, expected):
    chain = _chain(KINDS["bottleneck"], *channels, *((size, size) for size in sizes))
    assert [(size, c) for (size, _), c in chain] == expected
    assert len(_chain(KINDS["linear"], *channels, *((size, size) for size in sizes))) == 1


def test_a_new_bottleneck_passes_its_input_through_and_normalises_inside():
    block = KINDS["bottleneck"].build(Layout.IMAGE, 8, 8).eval()
    x = torch.rand(2, 8, 4, 4)
    assert torch.equal(block(x), x)
    assert block.residual[0].out_channels == 2


@pytest.mark.parametrize("kind", MAPPING)
def test_supernets_across_layouts_and_sizes_are_selected_run_and_costed(networks, kind, images):
    joining = (
        [network for network in networks if network.name in ("mixer", "last")] if kind == "transformer" else networks
    )
    supernet = Supernet.build(joining, kind=kind, resize=True)
    assert any(link.source.layout is not link.target.layout for link in supernet.links)
    rng = np.random.default_rng(0)
    for x in rng.random((4, supernet.n_var)) < 0.3:
        subnetwork = supernet.subnetwork(x)
        module = subnetwork.module()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            module(images[:1])
        assert counter.get_total_flops() // 2 == subnetwork.cost
        torch.testing.assert_close(module(images), interpret(supernet, x, images)[0])


def test_links_of_several_kinds_between_the_same_taps_coexist(networks, images):
    residual, gated = networks[:2]
    ends = residual.tap("relu"), gated.tap("mul")
    supernet = Supernet([gated, residual], [Link(*ends, kind) for kind in ("linear", "conv3x3", "bottleneck")])
    assert supernet.n_switches == 2
    assert supernet.n_matches == 1
    outputs = set()
    for chosen in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        subnetwork = supernet.subnetwork([*chosen, 0, 0])
        assert [link.kind for link in subnetwork.links] == [supernet.links[chosen.index(1)].kind]
        outputs.add(tuple(subnetwork.module()(images).flatten().tolist()))
    assert len(outputs) == 3


def test_one_network_can_be_bridged_to_itself(networks, images):
    residual = networks[0]
    supernet = Supernet([residual], [Link(residual.tap("stem"), residual.tap("silu"), "bottleneck")])
    assert supernet.n_var == 1
    assert list(supernet.references) == ["residual"]
    assert supernet.subnetwork([True]).cost < residual.cost
    assert supernet.subnetwork([True]).module()(images).shape == (3, 5)
    assert "Supernet of 1 network for" in str(supernet)
    supernet.fit(torch.rand(40, *IMAGE), samples=64)


@cache
def timm_network(name):
    return Network.from_module(timm.create_model(name), torch.rand(1, 3, 224, 224), name=name, normalize="timm")


@pytest.mark.slow
def test_bridges_cost_what_was_published():
    resnet, swin = timm_network("resnet50"), timm_network("swin_tiny_patch4_window7_224")
    for end, cost in (("layer4.0", 1_674_313_728), ("layer2.0", 3_575_382_016)):
        supernet = Supernet([resnet], [Link(resnet.tap("layer1.0"), resnet.tap(end), "bottleneck")])
        assert supernet.subnetwork([True]).cost == cost
    bridge = Link(resnet.tap("layer1.0"), swin.tap("layers.3.downsample"), "bottleneck")
    supernet = Supernet([resnet, swin], [bridge])
    assert supernet.subnetwork([True, True, False]).cost / swin.cost == pytest.approx(0.349, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("resnet50", "swin_tiny_patch4_window7_224"),
        ("resnet50", "vit_small_patch16_224"),
        ("vit_small_patch16_224", "swin_tiny_patch4_window7_224"),
        ("mobilenetv3_large_100", "resnet50"),
    ],
)
def test_real_networks_of_different_make_are_built_fitted_and_run(names):
    supernet = Supernet.build([timm_network(name) for name in names], resize=True)
    report = supernet.fit(torch.rand(16, 3, 224, 224), positions=4, batch_size=4)
    print(supernet, report, sep="\n")
    assert np.isfinite(list(report.errors.values())).all()
    x = np.zeros(supernet.n_var, dtype=bool)
    x[::9] = True
    with torch.inference_mode():
        assert supernet.subnetwork(x).module()(torch.rand(2, 3, 224, 224)).isfinite().all()
