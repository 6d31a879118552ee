"""Recalibration: statistics are exactly those of what a subnetwork computes, they are its own, and nothing else
changes."""

import copy
import json

import numpy as np
import pytest
import torch
from conftest import IMAGE, imported
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pymoo_stitch import Engine, Link, Pool, Supernet
from pymoo_stitch.families import Switchable
from pymoo_stitch.fitting.genotypes import random_genotype
from pymoo_stitch.network import is_batch_norm
from pymoo_stitch.report import describe_subnetwork
from pymoo_stitch.supernet import read_about


def noise(number, seed=0):
    return torch.rand(number, *IMAGE, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def fitted(residual, gated, deep):
    supernet = Supernet.build([residual, gated, deep], pairs="all")
    supernet.fit(noise(64), progress=False)
    return supernet


@pytest.fixture
def stitched(fitted):
    """A subnetwork with batch norms before and after its stitches."""
    x = np.zeros(fitted.n_var, dtype=bool)
    link = next(i for i, link in enumerate(fitted.links) if str(link.target) == "residual:blocks.0")
    x[link] = True
    return fitted.subnetwork(x)


def norms_of(module, images):
    """Of each batch norm of a module, in their order: what it reads, and its mean and variance."""
    found = []

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n):
            if "node" in n.meta and is_batch_norm(n.meta["node"]):
                tensor, _, _, mean, variance = (self.map_nodes_to_values(i, n) for i in n.args[:5])
                found.append((tensor.clone(), mean, variance))
            return super().run_node(n)

    with torch.no_grad():
        Recorder(module).run(images)
    return found


def has_statistics_of_its_input(tensor, mean, variance):
    rows = tensor.movedim(1, -1).reshape(-1, tensor.shape[1]).double()
    return torch.allclose(mean.double(), rows.mean(0), rtol=1e-4, atol=1e-6) and torch.allclose(
        variance.double(), rows.var(0), rtol=1e-4, atol=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch_size=st.integers(1, 24), count=st.integers(2, 20))
def test_every_norm_after_a_stitch_has_the_statistics_of_what_it_reads(fitted, seed, batch_size, count):
    """Checked in the module, as it runs afterwards on all images at once: so norms before it are recalibrated too."""
    subnetwork = fitted.subnetwork(random_genotype(fitted, np.random.default_rng(seed)))
    images = noise(count, seed)
    after = {step.id for step in subnetwork.norms_after_stitches()}
    if not after:
        with pytest.raises(ValueError, match="nothing to recalibrate"):
            subnetwork.recalibrate(images)
        return
    ids = [step.id for step in subnetwork.steps() if step.node is not None and is_batch_norm(step.node)]
    before = norms_of(subnetwork.module(), images)
    key, cost = subnetwork.key, subnetwork.cost
    report = subnetwork.recalibrate(images, batch_size=batch_size, progress=False)
    assert len(report.shifts) == len(after)
    for id, was, now in zip(ids, before, norms_of(subnetwork.module(), images), strict=True):
        if id in after:
            assert has_statistics_of_its_input(*now)
        else:
            assert all(torch.equal(old, new) for old, new in zip(was, now, strict=True))
    assert (subnetwork.key, subnetwork.cost, report.samples) == (key, cost, count)


def test_the_supernet_and_other_subnetworks_are_not_touched(fitted, stitched, images):
    digest, module = fitted.digest(), stitched.module()
    other = fitted.subnetwork(stitched.x)
    report = stitched.recalibrate(noise(32), progress=False)
    assert f"{len(report.shifts)} batch norms recalibrated on 32 images" in str(report)
    assert not torch.equal(stitched.module()(images), module(images))
    assert torch.equal(other.module()(images), module(images))
    assert fitted.digest() == digest
    stitched.undo_recalibration()
    assert torch.equal(stitched.module()(images), module(images))


def test_off_a_terminal_it_says_in_lines_how_far_it_is(stitched, capsys):
    stitched.recalibrate(noise(8))
    first, last = capsys.readouterr().err.splitlines()
    assert first == "recalibration: 0 of 2 batch norms"
    assert last.startswith("recalibration: 2 of 2 batch norms, ")
    stitched.recalibrate(noise(8), progress=False)
    assert not capsys.readouterr().err


def test_a_second_call_begins_again_and_a_batch_size_only_rounds(stitched, images):
    stitched.recalibrate(noise(32), batch_size=32)
    first = stitched.module()(images)
    stitched.recalibrate(noise(20, seed=5))
    assert not torch.allclose(stitched.module()(images), first, atol=1e-4)
    stitched.recalibrate(noise(32), batch_size=5)
    torch.testing.assert_close(stitched.module()(images), first, rtol=1e-4, atol=1e-5)


def test_the_images_may_come_in_any_form(stitched, images):
    given = noise(24)
    stitched.recalibrate(given)
    expected = stitched.module()(images)
    dataset = TensorDataset(given, torch.zeros(24))
    for form in ((given, torch.zeros(24)), dataset, DataLoader(dataset, 7), [given[:10], given[10:]]):
        assert stitched.recalibrate(form).samples == 24
        torch.testing.assert_close(stitched.module()(images), expected, rtol=1e-4, atol=1e-5)
    assert stitched.recalibrate(dataset, samples=9).samples == 9
    assert stitched.recalibrate(DataLoader(dataset, 7), samples=9).samples == 9
    assert stitched.recalibrate((given * 255).to(torch.uint8)).samples == 24


def test_the_engine_the_export_and_the_words_know_it(stitched, images, tmp_path):
    engine = Engine("cpu")
    (before,) = engine.predict([stitched], images)
    words = describe_subnetwork(stitched)
    stitched.recalibrate(noise(32))
    plain = stitched.space.subnetwork(stitched.x)
    changed, unchanged = engine.predict([stitched, plain], images)
    torch.testing.assert_close(changed, stitched.module()(images), rtol=1e-4, atol=1e-5)
    assert torch.equal(unchanged, before)
    assert not torch.allclose(changed, before, atol=1e-4)
    assert describe_subnetwork(stitched) == words
    about = stitched.export(tmp_path / "network.pt2")
    assert about["recalibrated"]
    assert read_about(tmp_path / "network.pt2") == json.loads(json.dumps(about))
    assert torch.equal(torch.export.load(tmp_path / "network.pt2").module()(images), stitched.module()(images))
    assert not plain.export(tmp_path / "plain.pt2")["recalibrated"]
    assert torch.equal(copy.deepcopy(stitched).module()(images), stitched.module()(images))
    with pytest.raises(ValueError, match="has statistics of its own"):
        Switchable([stitched, plain])


def test_retraining_undoes_it_and_comes_first(fitted, stitched):
    stitched.recalibrate(noise(32))
    stitched.retrain(noise(16), samples=16, progress=False)
    assert not stitched.norms
    stitched.recalibrate(noise(32))
    found = norms_of(stitched.module(), noise(32))
    assert sum(has_statistics_of_its_input(*parts) for parts in found) == len(stitched.norms) == 2


class Repeated(nn.Module):
    """One batch norm, called three times."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.third = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = self.norm(self.second(x)).relu()
        return self.norm(self.third(x)).mean((2, 3))


def test_a_norm_that_is_called_several_times_has_statistics_for_each_call():
    network = imported(Repeated, "repeated")
    supernet = Supernet([network], [Link(network.tap("first"), network.tap("second"))])
    supernet.fit(noise(32), progress=False)
    subnetwork = supernet.subnetwork([True])
    subnetwork.recalibrate(noise(32))
    found = norms_of(subnetwork.module(), noise(32))
    assert len(found) == len(subnetwork.norms) == 2  # the first call is not needed any more
    assert all(has_statistics_of_its_input(*parts) for parts in found)
    assert not torch.equal(found[0][1], found[1][1])


def plain_network():
    def block(inputs):
        return nn.Conv2d(inputs, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU()

    return nn.Sequential(*block(3), *block(5), *block(5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 5))


def test_chains_can_be_recalibrated_and_then_fused(images):
    chain = Pool([imported(plain_network, "plain")], noise(16)).self_stitched("plain")
    plain = chain.module()(images)
    chain.recalibrate(noise(16))
    found = norms_of(chain.module(), noise(16))
    assert len(chain.norms) > 1
    assert sum(has_statistics_of_its_input(*parts) for parts in found) == len(chain.norms)
    assert not torch.allclose(chain.module()(images), plain, atol=1e-4)
    torch.testing.assert_close(chain.fused().module()(images), chain.module()(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (noise(1), {}, "takes two images or more, but 1 is given"),
        ([], {}, "takes two images or more, but 0 are given"),
        (noise(4).double(), {}, "a batch to recalibrate on has images of torch.float64"),
        (torch.rand(4, 3, 5, 5), {}, "a batch to recalibrate on has images of shape"),
        (noise(4) * torch.nan, {}, "NaN or infinite"),
        (noise(4), {"samples": 1}, "samples must be at least 2 and batch_size at least 1, but they are 1 and 32"),
        (noise(4), {"batch_size": 0}, "at least 1, but they are 256 and 0"),
    ],
)
def test_bad_input_is_refused_and_leaves_the_subnetwork_as_it_was(stitched, images, options, message):
    stitched.recalibrate(noise(16))
    norms = stitched.norms
    with pytest.raises(ValueError, match=message):
        stitched.recalibrate(images, **options)
    assert stitched.norms is norms


def test_stitches_that_give_nan_are_named(fitted, stitched):
    stitched.stitches = copy.deepcopy(stitched.stitches)
    for parameter in stitched.stitches.parameters():
        parameter.detach().fill_(torch.nan)
    with pytest.raises(ValueError, match=r"the batch norm residual:norms\.0 reads NaN or infinite values"):
        stitched.recalibrate(noise(8))
    assert not stitched.norms


def test_without_a_batch_norm_after_a_stitch_there_is_nothing_to_do(fitted, mixer):
    plain = fitted.subnetwork(np.zeros(fitted.n_var, dtype=bool))
    with pytest.raises(ValueError, match="no batch norm of this subnetwork lies after a stitch"):
        plain.recalibrate(noise(8))
    tokens = Supernet([mixer], [Link(mixer.tap("norm"), mixer.tap("proj"))])
    with pytest.raises(ValueError, match="nothing to recalibrate"):
        tokens.subnetwork([True]).recalibrate(noise(8))
