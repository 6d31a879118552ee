"""Small networks of different make, imported once, and supernets over them."""

import os

# One thread in linear algebra, also of the processes that tests start: a model's rounding depends on their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import fcntl
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from pymoo_stitch.problems import get_problem
from torch import nn
from torch.nn import functional as F

from pymoo_stitch import DaskRunner, Link, Network, Supernet

torch.set_num_threads(1)

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DATA = ROOT.parent / "shared" / "data"
"""Networks and images trained and taken by others, where they are beside the project."""


class Residual(nn.Module):
    """A residual network with in-place activations, functional ones, pooling and a vector head."""

    def __init__(self, width=6, blocks=2):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(blocks))
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2 * width, 5)

    def forward(self, x):
        x = self.stem(x)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            y = norm(block(x))
            y += x
            x = F.relu_(y)
        return self.head(self.dropout(F.silu(self.down(x)).mean((2, 3))))


class Gated(nn.Module):
    """A network with parallel branches, concatenation, squeeze-and-excitation and a flattened pooling."""

    def __init__(self, width=4):
        super().__init__()
        self.left, self.right = nn.Conv2d(3, width, 1), nn.Conv2d(3, width, 3, padding=1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * width, 2 * width, 1), nn.Sigmoid())
        self.down = nn.Conv2d(2 * width, 3 * width, 2, stride=2)
        self.norm = nn.BatchNorm2d(3 * width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(3 * width, 5)

    def forward(self, x):
        x = torch.cat([F.relu(self.left(x)), self.right(x)], 1)
        x = F.hardswish(self.norm(self.down(x * self.gate(x))))
        return self.head(self.pool(x).flatten(1))


class Mixer(nn.Module):
    """Tokens with a class token, attention, and a residual stream."""

    def __init__(self, width=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.norm, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))
        return self.head(x[:, 0])


IMAGE = (3, 8, 8)


def seeded(make, seed=0):
    """A module whose weights and batch-norm statistics are random, but always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
                if part.affine:
                    nn.init.uniform_(part.weight, 0.5, 2)
    return module


@pytest.fixture(scope="session")
def images():
    return torch.rand(3, *IMAGE, generator=torch.Generator().manual_seed(1))


def imported(make, name, seed=0):
    return Network.from_module(seeded(make, seed), torch.rand(1, *IMAGE), name=name)


def rows(tensor):
    """All positions of all images as rows of channels."""
    tensor = tensor if tensor.ndim == 2 else tensor.movedim(1, -1)
    return tensor.reshape(-1, tensor.shape[-1]).double()


@pytest.fixture(scope="session")
def residual():
    return imported(Residual, "residual")


@pytest.fixture(scope="session")
def gated():
    return imported(Gated, "gated")


@pytest.fixture(scope="session")
def deep():
    return imported(lambda: Residual(width=5, blocks=4), "deep", seed=2)


@pytest.fixture(scope="session")
def mixer():
    return imported(Mixer, "mixer")


@pytest.fixture(scope="session")
def pair(residual, gated):
    return Supernet.build([residual, gated])


@pytest.fixture(scope="session")
def pool(residual, gated, deep):
    return Supernet.build([residual, gated, deep], pairs="all")


@pytest.fixture(scope="session")
def by_hand(residual, gated, mixer):
    """Links of every sort: one-way, many-to-many, sharing a stitch, within one network, to itself, of two kinds of
    layout."""
    r, g, m = residual.tap, gated.tap, mixer.tap
    return Supernet(
        [gated, residual, mixer],
        [
            Link(r("stem.2"), g("cat")),
            Link(r("norms.0"), g("cat")),
            Link(r("norms.1"), g("cat")),
            Link(g("left"), r("blocks.1")),
            Link(g("right"), r("blocks.1")),
            Link(r("stem.0"), r("norms.1"), stitch="shared"),
            Link(r("blocks.0"), r("norms.1"), stitch="shared"),
            Link(r("relu"), r("relu")),
            Link(g("view"), r("mean")),
            Link(m("select"), g("view")),
            Link(m("norm"), m("proj")),
        ],
    )


@pytest.fixture(scope="session", params=["pair", "pool", "by_hand"])
def supernet(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """A cache for all tests, also of several processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent / "cache" if "PYTEST_XDIST_WORKER" in os.environ else base / "cache"


@pytest.fixture(scope="session")
def digits(shared_cache):
    """The default problem, trained once: who comes second waits, and finds it in the cache."""
    lock = shared_cache.with_name("digits.lock")
    with pytest.MonkeyPatch.context() as patch, open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        patch.setenv("PYMOO_STITCH_CACHE", str(shared_cache))
        return get_problem("digits")


@pytest.fixture(scope="session")
def workers():
    """A function that gives a Dask cluster of one worker, the same for all tests: workers take seconds to import
    torch."""
    with ExitStack() as stack:
        yield lru_cache(lambda: stack.enter_context(DaskRunner(n_workers=1)).client.cluster)


@pytest.fixture
def cache(shared_cache, monkeypatch):
    monkeypatch.setenv("PYMOO_STITCH_CACHE", str(shared_cache))
