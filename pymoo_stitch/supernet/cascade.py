"""Cascades: subnetworks one after another, each only for the images of which those before it were not sure."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx, nn

from ..network import INPUT, Batch, Device, GraphBuilder, as_product, fold, foldable, for_empty_batches, is_product
from ..util.digests import digest
from .sharing import Computation, Sharing, check_one_space

if TYPE_CHECKING:
    from .space import Space
    from .subnetwork import Subnetwork

COMBINE = ("mean", "last")
"""What the answer after a stage is: the mean of the scores of all stages so far, or those of the last one alone."""

IMAGES = -1
"""The number that stands for the input, which no step computes."""


class Cascade:
    """Subnetworks of one space, one after another. An image goes through the first. Where the top probability of the
    answer is at least the stage's threshold, that is the answer; the other images are *deferred* to the next stage,
    which computes only what no stage before it has computed.

    The answer after a stage is the mean of the scores of all stages so far, or the scores of that stage alone; its top
    probability is the largest of its softmax, of dense outputs the mean of that over all pixels. Scores are a
    subnetwork's outputs, or where it comes from a problem with a head, what the head makes of them.

    >>> problem = get_problem("digits")
    >>> small, large = (problem.subnetwork(problem.space.references[name]) for name in ("inverted", "residual"))
    >>> cascade = Cascade([small, large], [0.9])
    >>> cascade.costs, cascade.expected_cost([1, 0.25])
    ((99904, 733744), 258364.0)
    >>> module = cascade.module()
    >>> module(torch.rand(7, 1, 8, 8)).shape, len(module.deferred)
    (torch.Size([7, 10]), 1)

    :param stages: two or more subnetworks of one space, in the order in which they run.
    :param thresholds: for each stage but the last, in [0, 1].
    :param combine: `"mean"` or `"last"`, see above.
    :param fractions: what fraction of images gets to each stage, where that has been measured: 1 for the first. `cost`
        is the expected cost then.
    """

    def __init__(
        self,
        stages: "Sequence[Subnetwork]",
        thresholds: Sequence[float],
        *,
        combine: str = "mean",
        fractions: Sequence[float] | None = None,
    ):
        self.stages: tuple[Subnetwork, ...] = tuple(stages)
        if len(self.stages) < 2:
            raise ValueError(f"a cascade has two stages or more, but {len(self.stages)} is given.")
        check_one_space(self.stages)
        with_heads = [stage.make_head is not None for stage in self.stages]
        if any(with_heads) and not all(with_heads):
            raise ValueError(
                f"stage {with_heads.index(False) + 1} has no head, and another has one: their scores cannot be "
                "compared. Take all from problem.subnetwork(x)."
            )
        self.thresholds = _checked_thresholds(thresholds, len(self.stages))
        if combine not in COMBINE:
            raise ValueError(f"combine must be {' or '.join(map(repr, COMBINE))}, but is {combine!r}.")
        self.combine = combine
        self.fractions = None if fractions is None else _checked_fractions(fractions, len(self.stages))

    @property
    def space(self) -> "Space":
        return self.stages[0].space

    @property
    def n_stitches(self) -> int:
        """How many stitches its stages use, each once."""
        return len({link for stage in self.stages for link in stage.links})

    @cached_property
    def key(self) -> str:
        """The canonical name of its structure, as a subnetwork's: the same for the same stages, thresholds (as float32)
        and rule."""
        thresholds = np.array(self.thresholds, dtype="<f4")
        # The letter before it: pymoo turns into floats what can be read as one.
        return "c" + digest([" ".join([*(stage.key for stage in self.stages), self.combine]), thresholds])

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """For each stage, the multiply-adds for an image that reaches it and goes no further."""
        sharing, seen, added = Sharing(self.stages), set[int](), list[int]()
        for numbers in sharing.of:
            added.append(sum(sharing.computations[i].step.cost for i in set(numbers) - seen))
            seen.update(numbers)
        return tuple(accumulate(added))

    @property
    def worst_cost(self) -> int:
        """The multiply-adds for an image that gets to the last stage."""
        return self.costs[-1]

    @property
    def cost(self) -> float:
        """The expected multiply-adds for one image with the measured `fractions`; without them, those of the worst
        case."""
        return self.worst_cost if self.fractions is None else self.expected_cost(self.fractions)

    def expected_cost(self, fractions: Sequence[float]) -> float:
        """The mean multiply-adds for one image.

        :param fractions: what fraction of the images gets to each stage, 1 for the first.
        """
        fractions = _checked_fractions(fractions, len(self.stages))
        added = np.diff(self.costs, prepend=0)
        return float(np.dot(fractions, added))

    def document(self) -> dict[str, Any]:
        """What it is, as JSON takes it; `from_document` reads it. Stitches and statistics that a stage alone has are
        not included."""
        return {
            "key": self.key,
            "stages": ["".join("01"[bit] for bit in stage.x.tolist()) for stage in self.stages],
            "thresholds": list(self.thresholds),
            "combine": self.combine,
            "fractions": None if self.fractions is None else list(self.fractions),
            "multiply_adds": list(self.costs),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], subnetwork: Callable[[np.ndarray], "Subnetwork"]) -> "Cascade":
        """The cascade that `document` describes.

        :param subnetwork: what selects its stages, such as `problem.subnetwork`, which attaches a head, or
            `supernet.subnetwork`.
        """
        try:
            stages = [subnetwork(np.array([bit == "1" for bit in bits])) for bits in document["stages"]]
            options = {"combine": document["combine"], "fractions": document["fractions"]}
            cascade = cls(stages, document["thresholds"], **options)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this does not describe a cascade: {error}") from error
        if cascade.key != document.get("key"):
            raise ValueError(
                f"the cascade {document.get('key')} is not of these networks and links: here it would be {cascade.key}."
            )
        return cascade

    def module(self, device: torch.device | str | None = None) -> "CascadeModule":
        """A plain module, in eval mode, that holds copies of what it uses and nothing else, each weight once. Later
        stages run on the deferred images alone, from the tensors that earlier ones have computed. Batch norms are
        folded into the convolutions before them. Heads are part of it. Without a device it is on the CPU."""
        return CascadeModule(self, device)

    def export(
        self,
        path: str | os.PathLike,
        *,
        classes: Sequence[str] | None = None,
        metrics: Mapping[str, Mapping[str, float]] | None = None,
    ) -> dict[str, Any]:
        """Write `module()` to a file that runs without this package, `.pt2` or `.onnx`, verified with none, some and
        all images deferred: see `export.export_cascade`."""
        from .export import export_cascade

        return export_cascade(self, path, classes=classes, metrics=metrics)

    def __repr__(self) -> str:
        parts = [
            f"{' + '.join(network.name for network in stage.outputs)}"
            + (f" with {stage.n_stitches} stitch{'es' * (stage.n_stitches != 1)}" if stage.n_stitches else "")
            for stage in self.stages
        ]
        line = parts[0] + "".join(f", below {t:.4g} {part}" for t, part in zip(self.thresholds, parts[1:], strict=True))
        costs = "–".join(f"{cost:,}" for cost in (self.costs[0], self.worst_cost))
        return f"Cascade({line}; {costs} multiply-adds, key {self.key})"


def top_probability(scores: torch.Tensor) -> torch.Tensor:
    """The largest of the softmax over the second dimension, [B]; its mean over all pixels where there are any."""
    top = scores.softmax(1).amax(1)
    return top if top.ndim == 1 else top.flatten(1).mean(1)


def _checked_thresholds(thresholds: Sequence[float], n_stages: int) -> tuple[float, ...]:
    given = [thresholds] if isinstance(thresholds, Real) else list(thresholds)
    if len(given) != n_stages - 1:
        raise ValueError(
            f"a cascade of {n_stages} stages has {n_stages - 1} threshold{'s' * (n_stages > 2)}, one for each stage "
            f"but the last, but {len(given)} are given."
        )
    for threshold in given:
        if not isinstance(threshold, Real) or isinstance(threshold, bool) or not 0 <= float(threshold) <= 1:
            raise ValueError(f"a threshold is a probability in [0, 1], but {threshold!r} is given.")
    return tuple(map(float, given))


def _checked_fractions(fractions: Sequence[float], n_stages: int) -> tuple[float, ...]:
    found = tuple(map(float, fractions))
    falling = all(0 <= after <= before for before, after in pairwise(found))
    if len(found) != n_stages or not math.isclose(found[0], 1) or not falling:
        raise ValueError(
            f"fractions are those of the images that get to each of {n_stages} stages: 1, and then never more than "
            f"before, but are {list(found)}."
        )
    return found


# -------------------------------------------------------------------------------------------------------------- running


class CascadeModule(nn.Module):
    """A cascade as a module: a batch in, a batch out. `deferred` tells how many images of the last batch each stage but
    the last has deferred; the thresholds are its buffers `threshold1`, `threshold2`, …"""

    def __init__(self, cascade: Cascade, device: torch.device | str | None = None):
        super().__init__()
        self.combine = cascade.combine
        self.deferred: tuple[int, ...] = ()
        for number, threshold in enumerate(cascade.thresholds, 1):
            self.register_buffer(f"threshold{number}", torch.tensor(threshold, dtype=torch.float32, device=device))
        programs = list(_programs(Sharing(cascade.stages)))
        self._reads = [program.reads for program in programs]
        self._kept_after = [_kept(programs, number) for number in range(len(programs))]
        self._keeps = [
            [i for i in kept if i in program.computes] for program, kept in zip(programs, self._kept_after, strict=True)
        ]
        self._dimensions = {
            i: 0 if i == IMAGES else next((at for at, _ in _batches(programs[0].sharing.computations[i])), None)
            for kept in self._kept_after
            for i in kept
        }
        writer = _Writer(cascade, device)
        self.stages = nn.ModuleList(
            writer.stage(number, program, self._keeps[number]) for number, program in enumerate(programs)
        )
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        answer, kept = self._run(0, {IMAGES: images})
        total, result, rows, deferred = answer, answer, None, []
        for number in range(1, len(self.stages)):
            # Not "below the threshold": NaN counts as not sure.
            unsure = (~(top_probability(answer) >= self.get_buffer(f"threshold{number}"))).nonzero().squeeze(1)
            deferred.append(unsure.shape[0])
            if not torch.compiler.is_exporting() and not deferred[-1]:
                break  # an exported program runs to its end, on no images
            rows = unsure if rows is None else rows.index_select(0, unsure)
            kept = {i: self._selected(i, kept[i], unsure) for i in self._kept_after[number - 1]}
            scores, kept = self._run(number, kept)
            total = total.index_select(0, unsure) + scores
            answer = total / (number + 1) if self.combine == "mean" else scores
            result = result.index_copy(0, rows, answer)
        if not torch.compiler.is_exporting():
            self.deferred = (*deferred, *[0] * (len(self.stages) - 1 - len(deferred)))
        return result

    def _run(self, number: int, kept: dict[int, torch.Tensor]) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The scores of a stage, and the tensors that are known after it."""
        scores, *tensors = self.stages[number](*(kept[i] for i in self._reads[number]))
        return scores, kept | dict(zip(self._keeps[number], tensors, strict=True))

    def _selected(self, number: int, tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        dimension = self._dimensions[number]
        return tensor if dimension is None else tensor.index_select(dimension, rows)


class _Program:
    """What a stage computes, in order, and what it reads of that which earlier stages have computed, the input
    included."""

    def __init__(self, sharing: Sharing, number: int, known: set[int]):
        self.sharing, self.results = sharing, sharing.results[number]
        needed: set[int] = set()
        reads: set[int] = set()
        pending = list(self.results)
        while pending:
            i = pending.pop()
            computation = sharing.computations[i]
            if i in known and _can_be_kept(computation):
                reads.add(i)
            elif i not in needed:
                if i in known and computation.step.cost:
                    raise ValueError(
                        f"stage {number + 1} needs {computation.step.node.name} of {computation.step.network.name}, "
                        "which an earlier stage has computed, but deferred images cannot be told apart in it: its "
                        "first dimension is not the batch. Use another stage."
                    )
                needed.add(i)
                pending += computation.reads.values()
        self.order = [i for i in sharing.of[number] if i in needed]
        self.computes = needed
        if any(_reads_images(sharing.computations[i]) for i in self.order):
            reads.add(IMAGES)
        self.reads = sorted(reads)


def _programs(sharing: Sharing) -> Iterator[_Program]:
    known: set[int] = set()
    for number in range(len(sharing.of)):
        program = _Program(sharing, number, known)
        known |= program.computes
        yield program


def _kept(programs: Sequence[_Program], number: int) -> list[int]:
    """The tensors that are known after a stage and read by a later one."""
    known = {IMAGES}.union(*(program.computes for program in programs[: number + 1]))
    read = {i for program in programs[number + 1 :] for i in program.reads}
    return sorted(known & read)


def _batches(computation: Computation) -> list[tuple[int, Batch]]:
    """The dimensions that depend on the number of images, and how."""
    step = computation.step
    if step.link is not None:
        return [(0, Batch(1))]
    return [(i, size) for i, size in enumerate(step.node.shape or ()) if isinstance(size, Batch)]


def _can_be_kept(computation: Computation) -> bool:
    """Whether it is one tensor in which images can be told apart, or a constant. What a layer that folds windows into
    the batch makes is neither."""
    sizes = [size for _, size in _batches(computation)]
    is_tensor = computation.step.node is None or computation.step.node.shape is not None
    return is_tensor and sizes in ([], [Batch(1)])


def _reads_images(computation: Computation) -> bool:
    """Whether a step reads the input, its number of images, or its device."""
    node = computation.step.node
    if node is None:
        return False
    return INPUT in node.inputs() or any(
        isinstance(value, (Batch, Device)) for value in for_empty_batches(node).values()
    )


class _Writer:
    """Writes stages as modules, all from one store of weights, so that each is held once."""

    def __init__(self, cascade: Cascade, device: torch.device | str | None):
        self.stages, self.device, self.root = cascade.stages, device, nn.Module().eval()
        heads = [stage.make_head() for stage in cascade.stages if stage.make_head is not None]
        self.heads = heads or None
        self._foldable = {network.name: foldable(network) for network in cascade.space.networks}

    def stage(self, number: int, program: _Program, keeps: Sequence[int]) -> fx.GraphModule:
        """A module from what the stage reads to its scores and what it keeps for later ones."""
        builder, sharing = GraphBuilder(self.device, self.root), program.sharing
        made = {IMAGES: builder.input} | {
            i: builder.graph.placeholder(f"kept{i}") for i in program.reads if i != IMAGES
        }
        if IMAGES not in program.reads:
            builder.graph.erase_node(builder.input)
        raw = self._folded_away(sharing)
        for i in program.order:
            if i not in raw:
                made[i] = self._written(builder, sharing, sharing.computations[i], made, raw)
        scores = builder.mean([made[i] for i in program.results])
        if self.heads:
            head = self.heads[number]
            scores = builder.call(f"heads.{self.heads.index(head)}", head, scores)
        return builder.module((scores, *(made[i] for i in keeps)), f"Stage{number + 1}")

    def _folded_away(self, sharing: Sharing) -> set[int]:
        """The convolutions that are part of the norm after them: those that nothing else reads, in any stage."""
        readers = Counter(i for computation in sharing.computations for i in set(computation.reads.values()))
        readers.update(i for results in sharing.results for i in results)
        found = (self._convolution_before(computation) for computation in sharing.computations)
        return {i for i in found if i is not None and readers[i] == 1 and sharing.computations[i].step.link is None}

    def _convolution_before(self, norm: Computation) -> int | None:
        if norm.step.node is None:
            return None
        name = self._foldable[norm.step.network.name].get(norm.step.node.name)
        return None if name is None else norm.reads[name]

    def _written(
        self,
        builder: GraphBuilder,
        sharing: Sharing,
        computation: Computation,
        made: Mapping[int, fx.Node],
        raw: set[int],
    ) -> fx.Node:
        step, reads = computation.step, computation.reads
        if step.link is not None:
            owner, (source,) = self.stages[computation.owner], reads.values()
            own = f"own{computation.owner}." if owner.retrained else ""
            return builder.call(f"{own}stitches.{step.link.stitch}", owner.stitches[step.link.stitch], made[source])
        own = f"own{computation.owner}." if step.own is not None else ""
        node, weights, prefix = step.node, step.weights, f"{own}{step.network.name}"
        if (before := self._convolution_before(computation)) in raw:
            reads = sharing.computations[before].reads
            node, weights = fold(sharing.computations[before].step.node, node, weights)
            prefix = f"{own}folded.{step.network.name}.{step.node.name}"
        elif is_product(node):
            node, weights = as_product(node, weights)
            prefix = f"{own}products.{step.network.name}.{step.node.name}"
        if node is not step.node:
            weights = {name: nn.Parameter(weight, requires_grad=False) for name, weight in weights.items()}
        node = for_empty_batches(node)
        read = {INPUT: made[IMAGES]} | {name: made[i] for name, i in reads.items()}
        return builder.node(node, read.__getitem__, weights, prefix)
