"""Stitches trained step by step: each on its own, or together in subnetworks."""

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ..stitches import Modules
from ..supernet import FitReport
from ._batches import Data, warn_of_mixed_inputs
from .errors import check_finite, held_out_errors, learns
from .execution import Execution
from .genotypes import random_genotype
from .restoring import divergence

if TYPE_CHECKING:
    from ..supernet import Subnetwork, Supernet


# ----------------------------------------------------------------------------------------------------------------- adam


def adam(
    supernet: "Supernet",
    images: Any,
    *,
    batch_size: int = 32,
    samples: int = 16_384,
    lr: float = 1e-3,
    stitches: Iterable[str] | None = None,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitReport:
    """[G] 4: minimise the sum over stitches of the mean squared error between a stitch's output and the original
    tensor, by Adam, for stitches of any kind.

    Every link's gradient is computed as soon as its two taps are there, so that the activations of one link, not of
    all, are in memory.

    :param samples: how many images are shown in all; fewer images than that are shown several times.
    :param stitches: the names of those to fit; all by default.
    """
    start, device = time.perf_counter(), torch.device(device or "cpu")
    names = {name for name in stitches or supernet.stitches if learns(supernet.stitches[name])}
    execution = Execution(supernet, device)
    modules = supernet.stitches.to(device)
    parameters = [parameter for name in sorted(names) for parameter in modules[name].parameters()]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    data = Data(supernet, images, batch_size, device, progress, "adam", samples, seed)
    losses = []
    with _learning(modules, names):
        for batch, _ in data.batches():
            optimizer.zero_grad(set_to_none=True)
            total = 0.0
            for number, source, target in execution.taps(batch):
                name = supernet.links[number].stitch
                if name in names:
                    check_finite(source, supernet.links[number].source)
                    check_finite(target, supernet.links[number].target)
                    with _mixed_precision(device):
                        loss = F.mse_loss(modules[name](source).float(), target)
                    loss.backward()
                    total += loss.item()
            if not math.isfinite(total):
                raise ValueError(f"the loss became {total} after {data.seen} samples. Use a smaller lr than {lr}.")
            optimizer.step()
            losses.append(total)
            data.tell(loss=f"{total:.4g}")
    errors = held_out_errors(supernet, execution, data, modules)
    modules.to("cpu")
    return FitReport("adam", errors, data.seen, time.perf_counter() - start, losses=losses)


# -------------------------------------------------------------------------------------------- stitches in subnetworks


def finetune(
    supernet: "Supernet",
    images: Any,
    *,
    genotypes: Sequence[np.ndarray] | np.ndarray | None = None,
    networks: float = 0.0,
    teacher: Sequence[bool] | np.ndarray | None = None,
    samples: int = 4_096,
    batch_size: int = 32,
    lr: float = 3e-4,
    labels: bool = False,
    distillation: float = 1.0,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitReport:
    """[SN]: at each step select a random subnetwork and train the stitches it uses, so that stitches after one another
    learn to live with each other's errors. The networks stay as they are, unless `networks` is given.

    :param genotypes: select one of these at each step, all equally often; of those in which there is nothing to train,
        none is selected.
    :param networks: train the parameters of the networks as well, at this fraction of `lr`; the published code does so
        for hierarchical networks at a tenth. The supernet then has networks of its own: those it was made of stay as
        they are. Statistics of batch norms are not trained.
    :param teacher: the genotype of the subnetwork to learn from, its networks as they are before training; by default
        their ensemble.
    :param samples: how many images are shown in all; fewer images than that are shown several times.
    :param labels: train on the labels that come with the images, by cross-entropy.
    :param distillation: the weight of the divergence from the teacher; 0 switches it off.
    """
    warn_of_mixed_inputs(supernet)
    if isinstance(networks, bool) or networks < 0:
        raise ValueError(f"networks must be a fraction of lr, such as 0.1, but is {networks}.")
    device = torch.device(device or "cpu")
    lessons = _Lessons(supernet, teacher, labels, distillation, device)
    execution = Execution(supernet, device, learning=True) if networks else lessons.execution
    choose = _chooser(supernet, genotypes, networks > 0, np.random.default_rng(seed))
    data = Data(supernet, images, batch_size, device, progress, "finetune", samples, seed)
    report = _train(data, supernet.stitches, execution, choose, lessons, lr, networks)
    if networks:
        supernet.take_networks(execution.networks())
    return report


def retrain(
    subnetwork: "Subnetwork",
    images: Any,
    *,
    teacher: Sequence[bool] | np.ndarray | None = None,
    samples: int = 4_096,
    batch_size: int = 32,
    lr: float = 1e-3,
    labels: bool = False,
    distillation: float = 1.0,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitReport:
    """[G] 15: train the stitches of one subnetwork of a supernet, as copies of its own, which it has from then on. The
    parameters are those of `finetune`. Recalibration is undone."""
    if not _can_learn(subnetwork):
        raise ValueError("this subnetwork uses no stitch, so that there is nothing to retrain.")
    subnetwork.undo_recalibration()
    supernet, device = cast("Supernet", subnetwork.space), torch.device(device or "cpu")
    lessons = _Lessons(supernet, teacher, labels, distillation, device)
    names = dict.fromkeys(link.stitch for link in subnetwork.links)
    stitches = nn.ModuleDict({name: copy.deepcopy(subnetwork.stitches[name]) for name in names})
    data = Data(supernet, images, batch_size, device, progress, "retrain", samples, seed)
    report = _train(data, stitches, lessons.execution, lambda: subnetwork, lessons, lr)
    subnetwork.stitches, subnetwork.retrained = stitches, True
    return report


class _Lessons:
    """What is learnt from: labels, a teacher, or both. The teacher's networks stay as they are now."""

    def __init__(
        self,
        supernet: "Supernet",
        teacher: Sequence[bool] | np.ndarray | None,
        labels: bool,
        distillation: float,
        device: torch.device,
    ):
        if not labels and distillation <= 0:
            raise ValueError(
                "there is nothing to learn from: neither labels=True nor a positive distillation is given."
            )
        self.labels, self.distillation = labels, distillation
        self.execution = Execution(supernet, device)
        self._teacher = supernet.subnetwork(list(supernet.references.values())[-1] if teacher is None else teacher)

    def loss(
        self,
        output: torch.Tensor,
        batch: torch.Tensor,
        truth: torch.Tensor | None,
        stitches: Modules,
    ) -> torch.Tensor:
        if self.labels and truth is None:
            raise ValueError("labels=True needs batches of (images, labels), but only images are given.")
        loss = F.cross_entropy(output, truth.to(output.device)) if self.labels else output.new_zeros(())
        if self.distillation > 0:
            with torch.no_grad():
                expected = self.execution.run(self._teacher, batch, stitches)
            loss = loss + self.distillation * divergence(output, expected)
        return loss


def _train(
    data: Data,
    stitches: nn.ModuleDict,
    execution: Execution,
    choose: "Callable[[], Subnetwork]",
    lessons: _Lessons,
    lr: float,
    networks: float = 0.0,
) -> FitReport:
    """Train stitches, and whatever learns in the execution's networks at that fraction of `lr`, in the subnetwork
    chosen at each step."""
    start = time.perf_counter()
    stitches.to(data.device)
    groups: list[dict[str, Any]] = [
        {"params": list(stitches.parameters())},
        {"params": execution.parameters, "lr": lr * networks},
    ]
    parameters = [parameter for group in groups for parameter in group["params"]]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, math.ceil(data.samples / data.batch_size))
    losses = []
    with _learning(stitches, stitches):
        for batch, truth in data.batches():
            with _mixed_precision(data.device):
                output = execution.run(choose(), batch, stitches).float()
            loss = lessons.loss(output, batch, truth, stitches)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            data.tell(loss=f"{losses[-1]:.4g}")
    errors = held_out_errors(execution.supernet, execution, data, stitches)
    stitches.to("cpu")
    return FitReport(data.title, errors, data.seen, time.perf_counter() - start, losses=losses)


def _chooser(
    supernet: "Supernet",
    genotypes: Sequence[np.ndarray] | np.ndarray | None,
    with_networks: bool,
    rng: np.random.Generator,
) -> "Callable[[], Subnetwork]":
    """What is trained at the next step."""
    if genotypes is None:
        return lambda: _random_subnetwork(supernet, rng)
    given = [supernet.subnetwork(x) for x in genotypes]
    if not with_networks:
        given = [each for each in given if _can_learn(each)]
    if not given:
        raise ValueError("none of the genotypes uses a stitch, so that there is nothing to fit.")
    return lambda: given[rng.integers(len(given))]


def _can_learn(subnetwork: "Subnetwork") -> bool:
    return any(learns(subnetwork.stitches[link.stitch]) for link in subnetwork.links)


def _random_subnetwork(supernet: "Supernet", rng: np.random.Generator) -> "Subnetwork":
    """One that uses a stitch."""
    for _ in range(1_000):
        subnetwork = supernet.subnetwork(random_genotype(supernet, rng))
        if _can_learn(subnetwork):
            return subnetwork
    raise ValueError("no random genotype uses a stitch: is any link on a path to the output?")


# --------------------------------------------------------------------------------------------------------- common parts


@contextmanager
def _learning(stitches: nn.ModuleDict, names: Iterable[str]) -> Iterator[None]:
    """Stitches of these names in training mode inside; all in eval mode and on the CPU after it, whatever happens."""
    for name in names:
        stitches[name].train()
    try:
        yield
    finally:
        stitches.eval().to("cpu").zero_grad(set_to_none=True)


def _mixed_precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, enabled=device.type == "cuda")
