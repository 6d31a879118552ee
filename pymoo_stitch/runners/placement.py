"""Which worker computes on which GPU: pure functions of environments, and of what workers say of themselves."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs that may be used here, by the names that CUDA_VISIBLE_DEVICES takes."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        named = [name.strip() for name in environ["CUDA_VISIBLE_DEVICES"].split(",")]
        return [name for name in named if name and not re.fullmatch(r"-\d+", name)]
    try:
        import torch
    except ImportError:
        return []
    return [str(i) for i in range(torch.cuda.device_count())]


def gpu_of(worker: int | str, gpus: list[str]) -> str:
    """Which of the GPUs the worker of this number uses: workers are spread evenly."""
    return gpus[int(worker) % len(gpus)]


def own_gpu(environ: Mapping[str, str], gpus: int) -> str | None:
    """The GPU on which a process computes, which torch calls "cuda": the first that it sees. dask-cuda shows all GPUs
    to each of its workers, in another order to each, so that they differ in the first one.

    :param gpus: how many torch finds.
    """
    if not gpus:
        return None
    named = visible_gpus(environ) if "CUDA_VISIBLE_DEVICES" in environ else []
    return named[0] if named else "0"


@dataclass(frozen=True)
class Place:
    """Where a worker computes.

    :param host: its host's address.
    :param gpu: a name of its GPU that is unique on the host; None for the CPU.
    :param gpus: how many GPUs it sees.
    :param threads: how many groups it evaluates at a time.
    """

    worker: str
    host: str
    gpu: str | None
    gpus: int
    threads: int

    @property
    def device(self) -> str:
        """A name of the device that is unique in the cluster."""
        return f"{self.host} {'CPU' if self.gpu is None else f'GPU {self.gpu}'}"


def devices(places: Iterable[Place]) -> dict[str, list[Place]]:
    """The workers of each device."""
    found: dict[str, list[Place]] = {}
    for place in sorted(places, key=lambda place: (place.device, place.worker)):
        found.setdefault(place.device, []).append(place)
    return found


def slots(places: Sequence[Place], count: int) -> list[Place]:
    """Whom to give work for so many evaluations at a time on one device: each worker one, then each a second, ….

    >>> one, two = (Place(name, "10.0.0.1", "0", 1, threads) for name, threads in (("a", 2), ("b", 1)))
    >>> [place.worker for place in slots([one, two], 3)]
    ['a', 'b', 'a']
    """
    rounds = range(max(place.threads for place in places))
    return [place for number in rounds for place in places if number < place.threads][:count]


def misplaced(places: Iterable[Place]) -> list[str]:
    """What looks like a mistake, as sentences: workers on one GPU that see others, and workers on CPUs beside some on
    GPUs. Several workers that see a single GPU, the same, are meant to share it."""
    places, found = list(places), []
    for device, group in devices(places).items():
        crowd = [place.worker for place in group if place.gpus > 1]
        if len(crowd) > 1:
            found.append(
                f"{', '.join(crowd)} all compute on {device}, though each "
                f"sees {group[0].gpus} GPUs. Give each its own: "
                "start it with CUDA_VISIBLE_DEVICES=0, the next with 1, …, or with dask-cuda."
            )
    without = [place.worker for place in places if place.gpu is None]
    if without and len(without) < len(places):
        found.append(
            f"{', '.join(without)} compute on CPUs, others on GPUs. Is torch "
            "there with CUDA, and CUDA_VISIBLE_DEVICES not empty?"
        )
    return found
