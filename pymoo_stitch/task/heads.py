"""Heads: what turns a network's output into scores for the classes of a task it was not trained for ([SF]).

A head is a recipe. Its `fit` makes a module from the outputs of one network for labelled images; `Task(head=…)` has
that done for every subnetwork, on the calibration split."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import nn


class Head(Protocol):
    """`n_classes`: how many classes the task has; None where the labels it learns from tell."""

    n_classes: int | None

    def fit(self, outputs: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        """A module from outputs [B, D] to scores [B, n_classes], whose softmax is probabilities."""
        ...


class ClassMap(nn.Module):
    """Each class of the task is a class of the networks, or several of them, whose probabilities are added.

    >>> cats_and_dogs = ClassMap([range(281, 286), range(151, 269)])
    >>> cats_and_dogs(torch.rand(7, 1000)).shape
    torch.Size([7, 2])

    :param classes: for each class of the task a class of the networks, or several.
    """

    columns: torch.Tensor
    padding: torch.Tensor

    def __init__(self, classes: Sequence[int | Sequence[int]]):
        super().__init__()
        try:
            groups = [[int(member) for member in np.atleast_1d(group)] for group in classes]
        except (TypeError, ValueError):
            raise TypeError(f"a class map is made of the numbers of classes, but is {classes!r}.") from None
        members = [member for group in groups for member in group]
        if len(groups) < 2 or not all(groups) or min(members) < 0 or len(set(members)) < len(members):
            raise ValueError(
                "a class map names for each of two or more classes one or more of the networks' classes, each of these "
                f"at most once, but is {classes!r}."
            )
        self.n_classes, self.classes, self.members = len(groups), tuple(map(tuple, groups)), members
        width = max(map(len, groups))
        self.register_buffer("columns", torch.tensor([group + group[:1] * (width - len(group)) for group in groups]))
        padding = torch.tensor([[0.0] * len(group) + [-torch.inf] * (width - len(group)) for group in groups])
        self.register_buffer("padding", padding)

    def fit(self, *_: object) -> nn.Module:
        return self

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        return (outputs[:, self.columns] + self.padding).logsumexp(2)

    def extra_repr(self) -> str:
        return f"{list(self.classes)}"


class NearestNeighbours:
    """The classes of those `k` labelled images whose outputs are nearest. [SF]: 5, by Euclidean distance.

    :param k: how many vote. Of classes with equally many votes, the one with the nearer neighbours is first.
    """

    n_classes = None

    def __init__(self, k: int = 5):
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k, the number of neighbours that vote, must be at least 1, but is {k!r}.")
        self.k = k

    def fit(self, outputs: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        votes = nn.functional.one_hot(labels.long(), n_classes).float()
        return _Neighbours(outputs.detach().float(), votes, min(self.k, len(outputs)))

    def __repr__(self) -> str:
        return f"NearestNeighbours(k={self.k})"


class _Neighbours(nn.Module):
    centre: torch.Tensor
    known: torch.Tensor
    lengths: torch.Tensor
    votes: torch.Tensor
    weights: torch.Tensor

    def __init__(self, known: torch.Tensor, votes: torch.Tensor, k: int):
        super().__init__()
        self.register_buffer("centre", known.mean(0))  # far from 0, the differences of squares would be lost
        self.register_buffer("known", known - self.centre)
        self.register_buffer("lengths", self.known.square().sum(1))
        self.register_buffer("votes", votes)
        self.register_buffer("weights", 1 - torch.arange(k) / (1_000 * k))
        self.k = k

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        # Without the square of the output itself, which is the same for all.
        distances = self.lengths - 2 * (outputs - self.centre) @ self.known.T
        nearest = distances.topk(self.k, largest=False).indices
        votes = (self.votes[nearest] * self.weights[:, None]).sum(1)
        return ((votes + 1 / self.k) / (self.k + self.votes.shape[1] / self.k)).log()


class LinearProbe:
    """Logistic regression on the outputs.

    :param penalty: of the squared weights, for outputs of variance 1.
    """

    n_classes = None

    def __init__(self, penalty: float = 1e-2):
        if not penalty > 0:
            raise ValueError(
                f"penalty must be a positive number, but is {penalty!r}; without it, any labels fit a few images."
            )
        self.penalty = penalty

    def fit(self, outputs: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        with torch.inference_mode(False), torch.enable_grad():
            return self._fitted(outputs.detach().clone().double(), labels.clone().long(), n_classes)

    def _fitted(self, outputs: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        mean, std = outputs.mean(0), outputs.std(0, correction=0).clamp_min(1e-6)
        rows = (outputs - mean) / std
        weight = rows.new_zeros(n_classes, rows.shape[1], requires_grad=True)
        bias = rows.new_zeros(n_classes, requires_grad=True)
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(rows @ weight.T + bias, labels)
            value = value + self.penalty / 2 * weight.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        probe = nn.Linear(rows.shape[1], n_classes).requires_grad_(False)
        weight, bias = weight.detach() / std, bias.detach()
        probe.weight.copy_(weight)
        probe.bias.copy_(bias - weight @ mean)
        return probe

    def __repr__(self) -> str:
        return f"LinearProbe(penalty={self.penalty})"
