"""What a cluster can do, asked of each of its workers before a search begins."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil

from ..util.versions import versions
from .base import Function
from .dask import DaskRunner
from .placement import Place, devices, own_gpu, slots

LIMIT = 300.0
"""Seconds in which a worker has to answer."""


def ask_all(
    runner: DaskRunner, function: Callable[..., Any], *args: Any, about: Function | None = None
) -> dict[str, Any]:
    """What each worker answers, by its address, or the exception that it meets; a TimeoutError of whom does not
    answer."""
    futures = {address: runner.ask(address, function, *args, about=about) for address in runner.addresses()}
    until, answers = time.monotonic() + LIMIT, {}
    for address, future in futures.items():
        try:
            answers[address] = future.result(timeout=max(0.1, until - time.monotonic()))
        except Exception as error:
            answers[address] = error
    return answers


def all_versions() -> dict[str, str]:
    """The versions of what workers and a search have to have in common."""
    return versions() | {"dask": version("distributed")}


def facts() -> dict[str, Any]:
    """What a worker says of itself: versions, memory, and the GPU on which it computes."""
    import torch

    memory = psutil.virtual_memory()
    found: dict[str, Any] = {"versions": all_versions(), "memory": memory.total, "free": memory.available}
    gpus = torch.cuda.device_count()
    found |= {"gpus": gpus, "gpu": own_gpu(os.environ, gpus), "gpu_name": None}
    if gpus:
        properties = torch.cuda.get_device_properties(0)
        # Two SLURM jobs may each call their GPU 0; no two have one UUID.
        found |= {"gpu": str(getattr(properties, "uuid", found["gpu"])), "gpu_name": properties.name}
        found["free_on_gpu"], found["memory_on_gpu"] = torch.cuda.mem_get_info(0)
    return found


def place_of(address: str, threads: int, found: Mapping[str, Any]) -> Place:
    """Where a worker computes, by its address and what it says of itself."""
    return Place(address, urlsplit(address).hostname or address, found["gpu"], found["gpus"], threads)


def evaluated(f: Any, X: np.ndarray) -> list[np.ndarray]:
    """The objectives of genotypes, and an error if there are none: what a worker does when it is asked for a result."""
    results = f.group(X)
    if failed := [result["failed"] for result in results if result.get("failed")]:
        raise RuntimeError(failed[0])
    return [np.asarray(result["F"], dtype=float) for result in results]


def largest_difference(answers: Mapping[str, Sequence[np.ndarray]]) -> np.ndarray:
    """Of each objective, the largest difference between two workers' results for one genotype."""
    F = np.array(list(answers.values()))
    return (F.max(0) - F.min(0)).max(0)


def rates(
    runner: DaskRunner, places: Sequence[Place], f: Function, sample: Callable[[int], np.ndarray], seconds: float = 2.0
) -> dict[int, float]:
    """Evaluations per second of the whole cluster, by how many groups each device evaluates at a time: 1, 2, 4, … and
    as many as it can.

    :param sample: makes so many genotypes.
    :param seconds: how long each of these measurements takes at least, unless evaluations are shorter than that
        together.
    """
    by_device = devices(places)
    most = max(sum(place.threads for place in group) for group in by_device.values())
    counts = [2**i for i in range(most.bit_length()) if 2**i < most] + [most]
    size, found = 1, {}
    for count in counts:
        while True:
            busy = [place for group in by_device.values() for place in slots(group, count)]
            jobs = [(place, sample(size)) for place in busy]
            begun = time.perf_counter()
            futures = [runner.ask(place.worker, evaluated, X, about=f) for place, X in jobs]
            runner.client.gather(futures)
            took = time.perf_counter() - begun
            if took >= seconds / 2 or size >= runner.group:
                break
            size *= 2
        found[count] = len(busy) * size / took
    return found
