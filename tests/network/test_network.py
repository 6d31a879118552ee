"""Import: the graph is the module, whatever the module does, and what cannot be imported says why."""

import pytest
import timm
import torch
import torchvision
from conftest import IMAGE, Gated, Mixer, Residual, seeded
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from pymoo_stitch import Layout, Network, Supernet
from pymoo_stitch.network import Batch, importing
from pymoo_stitch.supernet.storage import _check_nodes

EXAMPLE = torch.rand(1, *IMAGE)


@pytest.mark.parametrize("make", [Residual, Gated, Mixer])
def test_the_imported_graph_gives_exactly_the_modules_output(make):
    module = seeded(make).eval()
    network = Network.from_module(module, EXAMPLE)
    assert network.difference == 0
    for batch in (1, 2, 5):
        images = torch.rand(batch, *IMAGE)
        assert torch.equal(network.module()(images), module(images))


def test_import_leaves_the_module_as_it_was_and_the_network_does_not_follow_it():
    module = seeded(Residual)
    module.stem.eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = Network.from_module(module, EXAMPLE)
    assert module.training
    assert module.head.training
    assert not module.stem.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    with torch.no_grad():
        module.head.weight.zero_()
    assert torch.equal(network.weights["head.weight"], before["head.weight"])
    assert not any(weight.requires_grad for weight in network.weights.values())


def test_a_network_does_not_change_when_its_module_is_trained(residual, images):
    module = residual.module()
    before = residual.module()(images)
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module(images).square().sum().backward()
    optimizer.step()
    assert not torch.equal(module(images), before)
    assert torch.equal(residual.module()(images), before)


def test_in_place_operations_on_a_tensor_that_is_read_again_are_made_functional():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            y = self.conv(x)
            z = y.mean((2, 3))
            F.relu_(y)  # y itself is read below
            y[:, :2] += 1.0  # through a view
            return torch.cat([y.mean((2, 3)), z], 1)

    module = Overwriting()
    network = Network.from_module(module, EXAMPLE)
    images = torch.rand(4, *IMAGE)
    assert torch.equal(network.module()(images), module(images))


class Written(nn.Module):
    """In-place operations one after another, on what is read before and after, and on what two modules hold."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(4, 2)
        self.norm, self.dropout = nn.BatchNorm2d(4), nn.Dropout(0.5, inplace=True)

    def forward(self, x):
        y = self.first(x)
        before = y.mean((2, 3))
        z = F.relu_(self.dropout(y))
        y.mul_(self.norm(self.second(z)).sigmoid_())
        z += 1.0
        self.second(y)  # nobody reads this
        return self.head(F.elu_((y + z).mean((2, 3), keepdim=True).flatten(1) + before))


class Viewed(Written):
    """A view of what is overwritten later."""

    def forward(self, x):
        y = self.first(x)
        z = y.flatten(2)
        F.relu_(y)
        return self.head(z.mean(2).reshape(len(x), -1).flatten(1))


@pytest.mark.parametrize(
    ("make", "is_traced_again"), [(Residual, 0), (Gated, 0), (Mixer, 0), (Written, 0), (Viewed, 1)]
)
def test_in_place_operations_are_made_functional_as_torch_does_it(make, is_traced_again, monkeypatch):
    assert count_tracings_and_compare_graphs(seeded(make), 8, monkeypatch) == is_traced_again


def count_tracings_and_compare_graphs(module, size, monkeypatch):
    """How often `Network.from_module` has torch trace a program again; an error unless doing so gives the same
    graph."""
    example, trace_again = torch.rand(1, 3, size, size), torch.export.ExportedProgram.run_decompositions
    traced = []
    with monkeypatch.context() as patch:
        patch.setattr(
            torch.export.ExportedProgram,
            "run_decompositions",
            lambda program, table: traced.append(program) or trace_again(program, table),
        )
        network = Network.from_module(module, example)
    with monkeypatch.context() as patch:
        patch.setattr(importing, "make_functional", lambda program: program.run_decompositions({}))
        expected = Network.from_module(module, example)
    assert network.nodes == expected.nodes
    assert list(network.weights) == list(expected.weights)
    assert all(torch.equal(network.weights[name], weight) for name, weight in expected.weights.items())
    return len(traced)


def test_a_module_that_asks_for_the_length_of_its_input_is_imported():
    class Asking(nn.Module):
        def forward(self, x):
            return x.reshape(len(x), -1) * 2

    assert Network.from_module(Asking(), EXAMPLE).output_shape == (192,)


def test_a_tensor_held_under_two_names_is_kept_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    network = Network.from_module(Tied(), torch.rand(1, 4))
    assert sorted(network.weights) == ["first.bias", "first.weight", "second.bias"]


class Standardised(nn.Conv2d):
    """A convolution whose weights a batch norm standardises, as in NFNets and BiT ResNets."""

    def forward(self, x):
        flat = self.weight.reshape(1, len(self.weight), -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias, padding=self.padding)


def with_convolutions(*convolutions):
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*(part for conv in convolutions for part in (conv, nn.ReLU())), *head)


@pytest.mark.parametrize(
    "make",
    [
        Standardised,
        lambda *sizes: parametrizations.spectral_norm(nn.Conv2d(*sizes)),
        lambda *sizes: parametrizations.orthogonal(nn.Conv2d(*sizes)),
    ],
)
@pytest.mark.parametrize("normalize", [None, ((0.5,) * 3, (0.2,) * 3)])
def test_weights_made_of_weights_by_other_operators_are_computed_once(make, normalize):
    torch.manual_seed(0)
    module = with_convolutions(make(3, 6, 3), make(6, 5, 3)).eval()
    plain = with_convolutions(nn.Conv2d(3, 6, 3), nn.Conv2d(6, 5, 3))
    network = Network.from_module(module, EXAMPLE, normalize=normalize)
    expected = Network.from_module(plain, EXAMPLE, normalize=normalize)
    assert network.difference == 0
    assert [node.op for node in network.nodes] == [node.op for node in expected.nodes]
    assert [(tap.name, tap.shape, tap.depth) for tap in network.taps] == [
        (tap.name, tap.shape, tap.depth) for tap in expected.taps
    ]
    assert (network.cost, network.n_parameters) == (expected.cost, expected.n_parameters)
    assert not any("original" in name for name in network.weights)  # what they were made of is not kept


def test_a_computed_weight_is_kept_once_and_what_it_is_made_of_only_where_it_is_read():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.other = Standardised(3, 3, 1, bias=False), Standardised(3, 3, 1, bias=False)
            self.same = Standardised(3, 3, 1, bias=False)
            self.same.weight = self.shared.weight
            self.other.load_state_dict(self.shared.state_dict())  # the same numbers, but not the same parameter

        def forward(self, x):
            x = self.same(self.other(self.shared(self.shared(x)).relu())).relu()
            return F.conv2d(x, self.other.weight).mean((2, 3))

    module = Twice()
    network = Network.from_module(module, EXAMPLE)
    assert sorted(network.weights) == ["other.computed", "other.weight", "shared.computed"]
    assert all(isinstance(weight, nn.Parameter) for weight in network.weights.values())
    assert network.n_parameters == 27
    images = torch.rand(3, 3, 8, 8)
    torch.testing.assert_close(network.module()(images), module(images), rtol=0, atol=0)


def test_what_is_computed_of_buffers_alone_is_no_parameter():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("points", torch.linspace(0, 1, 8))
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            return (self.conv(x) * torch.special.bessel_j0(self.points) + torch.eye(8)).flatten(1)

    network = Network.from_module(Table(), EXAMPLE)
    assert network.n_parameters == 16
    assert len(network.weights) == 4
    assert sum("computed" in name for name in network.weights) == 2


def test_allowed_operators_on_weights_stay_in_the_graph():
    """Networks that could be imported before have the digests they had."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.conv = nn.Parameter(torch.rand(4)), Standardised(3, 4, 1)

        def forward(self, x):
            return (self.conv(x) * self.scale.reshape(-1, 1, 1)).mean((2, 3))

    network = Network.from_module(Scaled(), EXAMPLE)
    assert [node.op for node in network.nodes if node not in network.varying] == ["aten.view.default"]
    assert sorted(network.weights) == ["conv.bias", "conv.computed", "scale"]


def test_random_weights_cannot_be_imported():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 3, 1, 1))

        def forward(self, x):
            return F.conv2d(x, self.weight + 1e-9 * torch.rand(()))

    with pytest.raises(
        ValueError, match=r"noisy cannot be imported: operator 'aten\.rand\.default' is not among those"
    ):
        Network.from_module(Noisy(), EXAMPLE)


class Several(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.wrap, self.main, self.extra = wrap, nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.wrap(self.main(x), self.extra(x))


@pytest.mark.parametrize(
    ("wrap", "output", "chosen"),
    [
        (lambda main, extra: (main, extra), None, "main"),
        (lambda main, extra: [main, extra], 1, "extra"),
        (lambda main, extra: {"aux": extra, "out": main}, None, "main"),
        (lambda main, extra: {"aux": extra, "out": main}, "aux", "extra"),
        (lambda main, extra: {"only": main}, None, "main"),
    ],
)
def test_the_main_output_of_several_is_chosen_and_the_rest_left_out(wrap, output, chosen):
    module = Several(wrap)
    network = Network.from_module(module, torch.rand(1, 4), output=output)
    assert sorted(network.weights) == [f"{chosen}.bias", f"{chosen}.weight"]
    x = torch.rand(3, 4)
    assert torch.equal(network.module()(x), getattr(module, chosen)(x))


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda main, extra: {"a": main, "b": extra}, None),
        (lambda main, extra: {"a": main, "b": extra}, "c"),
        (lambda main, extra: (main, extra), 2),
        (lambda main, extra: None, None),
    ],
)
def test_an_output_that_is_not_there_is_an_error_that_lists_what_is(wrap, output):
    with pytest.raises(ValueError, match=r"several: the module returns .* output="):
        Network.from_module(Several(wrap), torch.rand(1, 4), output=output)


# --------------------------------------------------------------------------------------------------------------- errors


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Random(nn.Module):
    def forward(self, x):
        return x * torch.rand(())


class Unknown(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


class Mixing(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)).flatten(1) if len(x) < 2 else x.flatten(1)


class Counted(nn.Module):
    """Its output depends on a Python number that export fixes."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x.flatten(1) * self.calls


class Infinite(nn.Module):
    def forward(self, x):
        return x / 0


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branching(), "branching cannot be imported: its control flow depends on the values"),
        (Random(), "random cannot be imported: operator 'aten.rand.default' is not among those"),
        (Unknown(), "unknown cannot be imported: operator 'aten.special_bessel_j0.default' .*OPERATORS.add"),
        (Mixing(), "mixing cannot be imported"),
        (Counted(), "counted cannot be imported: for 1 samples the imported graph differs from the module by up to"),
        (Infinite(), "infinite cannot be verified: it returns NaN or infinite values"),
        (nn.Identity(), "identity cannot be imported: its output is its input"),
        (
            nn.Conv2d(1, 2, 3),
            r"conv2d does not run on an input of shape \(1, 3, 8, 8\): RuntimeError: .* Give an example",
        ),
    ],
)
def test_what_cannot_be_imported_names_the_model_and_the_cause(module, message):
    with pytest.raises(ValueError, match=message):
        Network.from_module(module, EXAMPLE)


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        (torch.rand(3), ValueError, r"batch of samples, but its shape is \(3,\)"),
        (torch.rand(0, 3, 8, 8), ValueError, r"its shape is \(0, 3, 8, 8\)"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), TypeError, "but is a tensor of torch.uint8"),
        ("image.png", TypeError, "but is str"),
        (torch.rand(3, 8, 8), ValueError, r"does not run on an input of shape \(3, 8, 8\)"),
    ],
)
def test_a_wrong_example_input_is_an_error_with_its_shape_or_type(example, error, message):
    with pytest.raises(error, match=message):
        Network.from_module(Residual(), example)


def test_a_module_is_needed_and_a_name_must_be_one():
    with pytest.raises(TypeError, match=r"from a torch.nn.Module, not from str"):
        Network.from_module("resnet50", EXAMPLE)
    for name in (
        "a b",
        "1st",
        "input",
        "ensemble",
        "stitches",
        "a.b",
        'x"]',
        "forward",
        "code",
        "training",
        "class",
        "",
        5,
    ):
        with pytest.raises(ValueError, match=r"Give another: Network\.from_module"):
            Network.from_module(Residual(), EXAMPLE, name=name)


# -------------------------------------------------------------------------------------------------------- normalisation


def test_normalisation_becomes_part_of_the_graph_and_makes_no_taps():
    module = seeded(Residual).eval()
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    network = Network.from_module(module, EXAMPLE, normalize=(mean, std))
    images = torch.rand(2, *IMAGE)
    normalised = (images - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    assert torch.equal(network.module()(images), module(normalised))
    assert network.normalization == (mean, std)
    plain = Network.from_module(module, EXAMPLE)
    assert [tap.name for tap in network.taps] == [tap.name for tap in plain.taps]
    assert network.cost == plain.cost


@pytest.mark.parametrize(
    "normalize",
    ["imagenet", "timm", (0.5, 0.5), ((0.5,) * 3,), ((0.5,) * 2, (1.0,) * 3), ((0.5,) * 3, (1.0, 1.0, 0.0))],
)
def test_a_normalisation_that_does_not_fit_is_an_error(normalize):
    with pytest.raises(ValueError, match="normalize"):
        Network.from_module(Residual(), EXAMPLE, normalize=normalize)


def test_timm_models_of_different_normalisation_need_it_in_the_graph():
    models = [seeded(Residual), seeded(Gated)]
    half, imagenet = ((0.5,) * 3, (0.5,) * 3), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for model, (mean, std) in zip(models, (half, imagenet), strict=True):
        model.pretrained_cfg = {"mean": mean, "std": std}  # as timm sets it
    with pytest.warns(UserWarning, match=r"residual: mean \(0.5, .* Use normalize='timm'"):
        Supernet.build(models, EXAMPLE)
    one = Network.from_module(models[0], EXAMPLE)
    other = Network.from_module(models[1], EXAMPLE, normalize="timm")
    with pytest.warns(UserWarning, match="Use normalize='timm'"):
        Supernet.build([one, other])
    supernet = Supernet.build(models, EXAMPLE, normalize="timm")
    assert [network.normalization for network in supernet.networks] == [half, imagenet]
    assert str(supernet).count("images in [0, 1]") == 2


def test_the_normalisation_is_read_from_a_timm_model():
    module = timm.create_model("test_vit")
    network = Network.from_module(module, torch.rand(1, 3, 160, 160), normalize="timm")
    assert network.normalization == (tuple(module.pretrained_cfg["mean"]), tuple(module.pretrained_cfg["std"]))
    assert network.name == "test_vit"


# ------------------------------------------------------------------------------------------------------- taps and costs


def test_taps_are_distinct_tensors_in_order_with_layout_and_depth(residual, mixer):
    names = [tap.name for tap in residual.taps]
    assert names[:7] == ["stem.0", "stem.1", "stem.2", "blocks.0", "norms.0", "add", "relu"]
    assert "head" not in names  # the output
    assert "dropout" not in names  # shows the mean again
    depths = [tap.depth for tap in residual.taps]
    assert depths == sorted(depths)
    assert depths[0] == 3 * 6 * 9 * 64 / residual.cost
    layouts = {tap.name: tap.layout for tap in mixer.taps}
    assert layouts == {
        "patches": Layout.IMAGE,
        "cat": Layout.CLASS_TOKENS,
        "norm": Layout.CLASS_TOKENS,
        "qkv": Layout.CLASS_TOKENS,
        "proj": Layout.CLASS_TOKENS,
        "add": Layout.CLASS_TOKENS,
        "select": Layout.VECTOR,
    }


def test_names_that_modules_or_python_use_are_made_others():
    for name in ("Half", "Class", "Input", "Réseau"):
        module = type(name, (Residual,), {})()
        network = Network.from_module(module, EXAMPLE)
        assert network.name in (f"network_{name.lower()}", "r_seau")
        assert network.module()(EXAMPLE).shape == (1, 5)


def test_an_output_asked_of_a_module_that_gives_one_tensor_is_an_error():
    with pytest.raises(ValueError, match="the module returns Tensor"):
        Network.from_module(Residual(), EXAMPLE, output="aux")


def test_a_normalisation_does_not_collide_with_parts_of_that_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.std = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)

        def forward(self, x):
            return self.std(self.mean(x).mean((2, 3)))

    network = Network.from_module(Named(), EXAMPLE, normalize=((0.5,) * 3, (0.5,) * 3))
    module = network.module()
    assert len(list(module.parameters())) == 4
    assert torch.equal(module.to("cpu")(EXAMPLE), network.module()(EXAMPLE))


def test_a_module_that_counts_is_left_as_it_was():
    class Counting(Residual):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x):
            self.n += 1
            return super().forward(x)

    module = Counting()
    Network.from_module(module, EXAMPLE)
    assert module.n == 0


def test_what_does_not_depend_on_the_images_is_no_tap():
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.table = nn.Parameter(torch.rand(1, 4)), nn.Parameter(torch.rand(1, 3, 8, 8))
            self.positions, self.conv = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

        def forward(self, x):
            positions = self.positions(self.table.expand(x.shape[0], -1, -1, -1))
            return (self.conv(x) + positions).mean((2, 3)) + self.token.expand(x.shape[0], -1)

    network = Network.from_module(Learned(), EXAMPLE)
    assert [tap.name for tap in network.taps] == ["conv", "add", "mean"]


def test_tokens_normalised_as_rows_are_followed_and_shuffled_ones_are_not():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.last = nn.Conv2d(3, 8, 8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)

        def forward(self, x):
            x = self.embed(x).flatten(2).transpose(1, 2)
            y = self.norm(x.flatten(0, 1)).view_as(x)
            x = F.relu(y)
            x = x.reshape(-1, 2, 2, 2, 2, 8).transpose(2, 3).reshape(-1, 16, 8)  # another order
            return self.last(x).mean(1)

    _, layouts = layouts_of(Rows())
    assert layouts == {"embed": Layout.IMAGE, "relu": Layout.TOKENS}


def test_a_tap_is_found_by_its_name_or_that_of_a_module_around_it(residual):
    assert residual.tap("stem.1").name == "stem.1"
    assert residual.tap("stem").name == "stem.2"
    with pytest.raises(ValueError, match=r"no tap 'stem.9'; the nearest are 'stem"):
        residual.tap("stem.9")


def layouts_of(module, size=32):
    network = Network.from_module(module, torch.rand(1, 3, size, size))
    return network, {tap.name: tap.layout for tap in network.taps}


def test_windows_attention_maps_and_queries_are_no_taps():
    class Windowed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.out = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8), nn.Linear(8, 8)
            self.attend = nn.Conv2d(2, 2, 1)

        def forward(self, x):
            x = self.embed(x).permute(0, 2, 3, 1)  # 8 × 8 positions
            b = x.shape[0]
            windows = x.reshape(b, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
            windows = F.relu(self.mix(windows))
            x = x + windows.reshape(b, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(b, 8, 8, 8)
            tokens = x.reshape(b, 64, 8)
            heads = tokens.reshape(b, 64, 2, 4).transpose(1, 2)
            weights = (heads @ heads.transpose(2, 3) * 0.5).softmax(-1)
            weights = self.attend(weights)  # a convolution, but not over an image
            tokens = self.out((weights @ heads).transpose(1, 2).reshape(b, 64, 8))
            return tokens.mean(1)

    network, layouts = layouts_of(Windowed())
    assert layouts == {"embed": Layout.IMAGE, "add": Layout.IMAGE_LAST, "out": Layout.TOKENS}
    folded = next(node for node in network.nodes if node.name == "mix")
    assert folded.shape == (Batch(4), 16, 8)


def test_a_transposed_mixing_of_positions_is_no_tap():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.positions, self.channels = nn.Conv2d(3, 8, 8, 8), nn.Linear(16, 16), nn.Linear(8, 8)

        def forward(self, x):
            x = self.embed(x).flatten(2).transpose(1, 2)
            x = x + F.gelu(self.positions(x.transpose(1, 2))).transpose(1, 2)
            return self.channels(x).mean(1)

    _, layouts = layouts_of(Mixing())
    assert layouts == {"embed": Layout.IMAGE, "add": Layout.TOKENS, "channels": Layout.TOKENS}


def test_costs_are_the_published_multiply_adds():
    assert Network.from_module(timm.create_model("resnet18"), torch.rand(1, 3, 224, 224)).cost == 1_814_073_344


# --------------------------------------------------------------------------------------------------------- real models

TIMM = """
    mobilenetv3_small_050 mobilenetv3_large_100 vit_small_patch16_224 deit_tiny_patch16_224
    swin_tiny_patch4_window7_224 convnext_tiny densenet121 inception_v3 regnety_016 maxvit_tiny_tf_224
    efficientvit_b0 edgenext_small coatnet_0_224 tf_efficientnetv2_s mixer_b16_224 poolformer_s12 hrnet_w18 dla34
    levit_128 crossvit_9_240 volo_d1_224 eva02_tiny_patch14_224 repvgg_a0 ghostnet_100 mobilevit_s davit_tiny
    eca_nfnet_l0 nf_resnet50 resnetv2_50x1_bit
""".split()
CLASSIFIERS = ["alexnet", "vgg16", "squeezenet1_1", "swin_t", "vit_b_16"]
SEGMENTERS = ["deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "fcn_resnet50"]


def check_import(module, size, name):
    network = Network.from_module(module, torch.rand(1, 3, size, size), name=name)
    assert network.difference <= 1e-5
    assert network.cost > 0
    _check_nodes(name, network.nodes, network.weights, network.input_shape, network.output)  # as on loading
    assert len(network.taps) > 10
    print(f"{name}: {len(network.taps)} taps, {network.cost:,} multiply-adds, difference {network.difference:.1g}")
    return network


@pytest.mark.parametrize("name", ["test_resnet", *(pytest.param(name, marks=pytest.mark.slow) for name in TIMM)])
def test_every_listed_timm_model_imports_at_its_default_size(name):
    module = timm.create_model(name)
    check_import(module, module.pretrained_cfg["input_size"][-1], name)


@pytest.mark.slow
def test_common_timm_models_are_not_traced_again_and_have_the_graph_that_torch_makes(monkeypatch):
    for name in "resnet18 mobilenetv2_050 regnety_002 convnext_atto hrnet_w18_small".split():
        assert count_tracings_and_compare_graphs(timm.create_model(name), 64, monkeypatch) == 0
    assert count_tracings_and_compare_graphs(timm.create_model("deit_tiny_patch16_224"), 224, monkeypatch) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_listed_torchvision_classifier_imports(name):
    check_import(getattr(torchvision.models, name)(weights=None), 224, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEGMENTERS)
def test_every_listed_torchvision_segmenter_imports_without_its_auxiliary_head(name):
    make = getattr(torchvision.models.segmentation, name)
    network = check_import(make(weights=None, weights_backbone=None, aux_loss=True), 130, name)
    assert network.output_shape == (21, 130, 130)
    assert not any("aux" in weight for weight in network.weights)


class Undecided(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            x = 2 * x
        return x.flatten(1)


def test_what_depends_on_values_is_one_sentence_with_the_line(capfd):
    with pytest.raises(
        ValueError, match=r"undecided cannot be imported: its control flow depends on the values"
    ) as raised:
        Network.from_module(Undecided(), torch.rand(2, 3, 4, 4))
    assert f"of {__file__}: if x.mean() > 0:." in str(raised.value)
    assert "torch.where" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")
