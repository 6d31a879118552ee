"""Two tiny networks whose evaluations take a known time, and write down that they happened: `--option log=FOLDER`."""

import os
import time
from pathlib import Path

import torch
from torch import nn

from pymoo_stitch import StitchProblem, Supernet, Task

torch.set_num_threads(1)


def network(width: int) -> nn.Sequential:
    layers = [nn.Conv2d(1 if i == 0 else width, width, 3, padding=1) for i in range(5)]
    blocks = [part for layer in layers for part in (layer, nn.ReLU())]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))


class Logged(StitchProblem):
    """Each group of genotypes takes `seconds` for each of them, besides what it takes. A line `begun` or `ended` with
    the time and their keys goes to a file of the process."""

    def __init__(self, space: Supernet, task: Task, log: Path, seconds: float):
        super().__init__(space, task)
        self.log, self.seconds = log, seconds

    def _evaluate(self, X, out, *args, **kwargs):
        keys = " ".join(self.key(x) for x in X)
        self._note("begun", keys)
        time.sleep(self.seconds * len(X))
        super()._evaluate(X, out, *args, **kwargs)
        self._note("ended", keys)

    def _note(self, what: str, keys: str) -> None:
        host = os.environ.get("STITCH_HOST", "nowhere")
        with open(self.log / f"{host}-{os.getpid()}.txt", "a") as file:
            file.write(f"{what} {time.time()} {keys}\n")


def problem(*, log: Path, seconds: float = 0.25) -> StitchProblem:
    kept = log / "pair.safetensors"
    if not kept.is_file():
        torch.manual_seed(0)
        supernet = Supernet.build([network(3), network(4)], torch.rand(1, 1, 8, 8))
        supernet.fit(torch.rand(32, 1, 8, 8))
        supernet.save(kept)
    rng = torch.Generator().manual_seed(1)
    splits = {
        name: (torch.rand(24, 1, 8, 8, generator=rng), torch.arange(24) % 3)
        for name in ("validation", "selection", "test")
    }
    return Logged(Supernet.load(kept), Task(**splits), log, seconds)
