"""Devices without a GPU: with fake tensors a pretended one works, and mixing devices raises. There are shapes and
devices to check, but no values."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from conftest import IMAGE, imported
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pymoo_stitch import Cascade, Link, Supernet, Switchable
from pymoo_stitch.task import METRICS, ClassMap, Engine, NearestNeighbours, Split

aten = torch.ops.aten
CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


class Pretending(TorchDispatchMode):
    """Answers what depends on values: numbers are 1, or 0 if they are whole, and every element of a mask is true.

    `made` has for each operator the devices of its results, `copied` what went from the CPU to the GPU: type, shape and
    whether it was waited for."""

    def __init__(self):
        super().__init__()
        self.made, self.copied = defaultdict(set), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (aten.item.default, aten._local_scalar_dense.default, aten.is_nonzero.default):
            return 1.0 if args[0].is_floating_point() else args[0].dtype is torch.bool
        if func is aten.bincount.default:
            return args[0].new_zeros(args[2])
        if func is aten.nonzero.default:
            return all_of(args[0])
        if func is aten.index.Tensor:
            masks = [[i] if i is None or i.dtype is not torch.bool else all_of(i).unbind(1) for i in args[1]]
            args = args[0], [i for group in masks for i in group]
        result = func(*args, **kwargs)
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.made[func].add(tensor.device)
        if func is aten._to_copy.default and (args[0].device, result.device) == (CPU, GPU):
            self.copied.append((args[0].dtype, tuple(args[0].shape), kwargs.get("non_blocking", False)))
        return result


def all_of(mask):
    """The places of all elements."""
    return mask.new_zeros(mask.numel(), mask.ndim, dtype=torch.int64)


@pytest.fixture
def pretending(monkeypatch):
    """All tensors are fake, as those are that take part and were made before."""

    def apply(module, function, recurse=True):  # torch's own swaps tensors, which is refused for fake ones
        for part in module.modules():
            for name, tensor in part.named_parameters(recurse=False):
                part._parameters[name] = nn.Parameter(function(tensor.detach()), tensor.requires_grad)
            for name, tensor in part.named_buffers(recurse=False):
                part._buffers[name] = function(tensor)
        return module

    def numpy(tensor):
        assert tensor.device == CPU
        return np.ones(tensor.shape)

    monkeypatch.setattr(nn.Module, "_apply", apply)
    monkeypatch.setattr(torch.Tensor, "__deepcopy__", lambda tensor, memo: tensor.detach().clone())
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: float(tensor.is_floating_point()))  # nothing is NaN
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: np.ones(tensor.shape).tolist())
    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    with FakeTensorMode(allow_non_fake_inputs=True), Pretending() as mode:
        yield mode


class Positions(nn.Module):
    """A network that makes tensors of its own: places, a mask."""

    def __init__(self, width=6):
        super().__init__()
        self.patches, self.scale = nn.Conv2d(3, width, 4, stride=4), nn.Parameter(torch.randn(width))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + torch.arange(x.shape[1])[:, None] * self.scale
        return self.head((x * torch.ones(x.shape[0], 1, 1)).mean(1))


@pytest.fixture(scope="session")
def positions():
    return imported(Positions, "positions")


@pytest.fixture(scope="session")
def mixed(by_hand, positions):
    """Layouts and links of every sort, and tensors that a network makes."""
    return Supernet([*by_hand.networks, positions], by_hand.links)


@pytest.fixture
def own(residual, gated):
    """A supernet that may be changed, with links that share a stitch, and a stitch of more channels than 7 images have
    rows."""
    r, g = residual.tap, gated.tap
    ends = [("left", "blocks.1"), ("right", "blocks.1"), ("view", "mean")]
    links = [Link(g(source), r(target), stitch=f"to_{target}".replace(".", "_")) for source, target in ends]
    return Supernet([residual, gated], [*links, Link(r("stem.2"), g("cat"))])


def some(supernet):
    """The ensemble, and a subnetwork with stitches."""
    ensemble = list(supernet.references.values())[-1]
    stitched = ensemble.copy()
    stitched[: len(supernet.links)] = np.arange(len(supernet.links)) % 2 == 0
    return [supernet.subnetwork(x) for x in (ensemble, stitched)]


def images(n=4, device=CPU):
    return torch.zeros(n, *IMAGE, device=device)


def labelled(n=20):
    return torch.zeros(n, *IMAGE, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64)


def places(module):
    return {tensor.device for tensor in module.state_dict().values()}


def test_pretended_devices_do_not_mix(pretending):
    with pytest.raises(RuntimeError, match="same device"):
        images() + images(device=GPU)


# ----------------------------------------------------------------------------------------------------------- the engine


def test_engine_computes_on_its_device(mixed, pretending):
    engine, outputs = Engine(GPU, memory=2**30), {}
    for plan in engine.plans(some(mixed)):
        plan.run(engine._prepared(images()), outputs.__setitem__)
    assert [(outputs[number].device, outputs[number].shape) for number in range(2)] == [(GPU, (4, 5))] * 2
    assert pretending.made[aten.conv2d.default] == pretending.made[aten.linear.default] == {GPU}


def evaluate(engine, supernet, split, **options):
    outcomes = engine.evaluate(some(supernet), split, ["accuracy"], **options)
    assert not any(outcome.failed for outcome in outcomes), outcomes


def test_split_is_copied_to_the_device_once_as_bytes(pair, pretending):
    engine, split = Engine(GPU, memory=2**30, batch_size=8), Split("validation", labelled())
    evaluate(engine, pair, split, each=True)
    evaluate(engine, pair, split, ease=np.linspace(0, 1, 20), needed=[0.5] * 2)
    copied = [copy for copy in pretending.copied if copy[0] in (torch.uint8, torch.int64) and copy[1][0] > 1]
    order = (torch.int64, (20,), False)
    assert copied == [(torch.uint8, (20, *IMAGE), True), (torch.int64, (20,), True), order]


def test_split_that_does_not_fit_is_streamed(pair, pretending):
    split, network = Split("validation", labelled(32)), pair.subnetwork(pair.references["gated"])
    engine = Engine(GPU, memory=split.nbytes - 1, batch_size=1)
    (outcome,) = engine.evaluate([network], split, ["accuracy"])
    assert not outcome.failed
    copied = [copy for copy in pretending.copied if copy[0] is torch.uint8]
    assert copied == [(torch.uint8, (1, *IMAGE), True)] * 32


def test_split_is_streamed_while_others_take_the_memory(pair, pretending, monkeypatch):
    def to(split, device):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Split, "to", to)
    evaluate(Engine(GPU, memory=2**30, batch_size=8), pair, Split("validation", labelled()))
    copied = [shape for dtype, shape, _ in pretending.copied if dtype is torch.uint8]
    assert copied == [(8, *IMAGE), (8, *IMAGE), (4, *IMAGE)]


@pytest.mark.parametrize("recipe", [ClassMap([0, [1, 2]]), NearestNeighbours(3)])
def test_heads_score_on_the_device_and_stay_where_they_are(pair, pretending, recipe):
    head = recipe.fit(torch.zeros(20, 5), labelled()[1], 4)
    evaluate(Engine(GPU, memory=2**30), pair, Split("validation", labelled()), heads=[head] * 2)
    assert places(head) == {CPU}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_computed_on_the_device(pretending, name):
    shape = (8, 8) if METRICS[name].dense else ()
    labels = torch.zeros(4, *shape, dtype=torch.int64, device=GPU)
    each = METRICS[name].each(torch.zeros(4, 5, *shape, device=GPU), labels)
    assert (each.device, len(each)) == (GPU, 4)


# -------------------------------------------------------------------------------------------------------------- modules


def test_module_is_on_the_device_asked_for_and_can_be_moved(mixed, pretending):
    for subnetwork in some(mixed):
        module = subnetwork.module("cuda:0", head=ClassMap([0, [1, 2]]))
        for device in (GPU, CPU):
            output = module.to(device)(images(device=device))
            assert (output.device, output.shape, places(module)) == (device, (4, 2), {device})


@pytest.mark.parametrize("combine", ["mean", "last"])
def test_cascade_is_on_the_device_asked_for_and_can_be_moved(mixed, pretending, combine):
    module = Cascade(some(mixed), [0.5], combine=combine).module("cuda:0")
    for device in (GPU, CPU):
        output = module.to(device)(images(device=device))
        assert (output.device, output.shape, places(module)) == (device, (4, 5), {device})
        assert module.deferred == (4,)


def test_switchable_runs_each_of_its_networks_wherever_it_is(mixed, pretending):
    module = Switchable(some(mixed), "cuda:0")
    for device in (GPU, CPU):
        module.to(device)
        for id in module.ids:
            assert module.select(id)(images(device=device)).device == device


# -------------------------------------------------------------------------------------------------------------- fitting


def test_least_squares_is_on_the_device(own, pretending):
    own.fit(images(8), device="cuda:0", progress=False)
    used = (aten.convolution, aten.linalg_cholesky_ex, aten.linalg_solve_triangular)
    assert [pretending.made[operator.default] for operator in used] == [{GPU}] * 3
    assert places(own.stitches) == {CPU}


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'", "ignore:CUDA is not available")
def test_training_is_on_the_device(own, pretending, monkeypatch):
    for place, name in ((torch.Tensor, "backward"), (nn.utils, "clip_grad_norm_")):  # torch asks the GPU itself
        monkeypatch.setattr(place, name, lambda *args, **kwargs: None)
    options = {"device": "cuda:0", "samples": 16, "batch_size": 16, "progress": False}
    own.fit(images(20), method="adam", **options)
    own.finetune(labelled(), labels=True, networks=0.1, **options)
    used = (aten.convolution.default, aten.mse_loss.default, aten.nll_loss_forward.default)
    assert [pretending.made[operator] for operator in used] == [{GPU}] * 3
    assert places(own.stitches) == {CPU} == {w.device for network in own.networks for w in network.weights.values()}


def test_recalibration_is_on_the_device(own, pretending):
    _, subnetwork = some(own)
    subnetwork.recalibrate(images(20), device="cuda:0", progress=False)
    assert pretending.made[aten.convolution.default] == {GPU}
    assert {w.device for step in subnetwork.norms.values() for w in step.own.values()} == {CPU}
    assert subnetwork.module("cuda:0")(images(device=GPU)).device == GPU
    assert Engine(GPU, memory=2**30).predict([subnetwork], images())[0].device == CPU
