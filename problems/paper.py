"""What the problems of the paper have in common."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def fit_options(method: str, *, samples: int, lr: float, batch_size: int, seed: int) -> dict[str, Any]:
    """The options of `Supernet.fit`, on a GPU if there is one.

    :param method: `"least-squares"`, or `"adam"` with the paper's settings, to which the other parameters belong.
    """
    common = {"method": method, "batch_size": batch_size, "device": "cuda" if torch.cuda.is_available() else "cpu"}
    if method == "least-squares":
        return common
    if method == "adam":
        return common | {"samples": samples, "lr": lr, "seed": seed}
    raise ValueError(f"stitches are fitted by least-squares or adam, but fit is {method!r}.")


def check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but is {value}.")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random weights that are the same every time, without changing the state of torch's random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def said_sizes() -> Iterator[None]:
    """Without the warning that networks were trained for other sizes: that is the paper's choice, as the docs say."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "images are .*, but these networks were trained on other sizes")
        yield
