"""Problems whose evaluation does something to the worker. Workers import this module, so it is on their path."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from binary_problems import TrapInverseTrap


class Slow(TrapInverseTrap):
    """Takes a while."""

    def __init__(self, n_var=20, seconds=0.02):
        super().__init__(n_var, seed=7)
        self.seconds = seconds

    def _evaluate(self, x, out, *args, **kwargs):
        time.sleep(self.seconds * len(x))
        super()._evaluate(x, out)
        out["pid"] = np.full(len(x), os.getpid())


class Large(Slow):
    """Counts how often it is pickled, and how often it is unpickled, in files of a folder."""

    def __init__(self, folder, **options):
        super().__init__(**options)
        self.folder, self.weights = Path(folder), np.zeros(500_000)

    def __getstate__(self):
        (self.folder / f"pickled-{time.time_ns()}").touch()
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)
        (self.folder / f"unpickled-{os.getpid()}-{time.time_ns()}").touch()


class Harmful(Slow):
    """Does harm to its worker where the first three variables are 1: always, or only the first time."""

    def __init__(self, harm, folder, once=False, **options):
        super().__init__(**options)
        self.harm, self.folder, self.once = harm, Path(folder), once

    def _evaluate(self, x, out, *args, **kwargs):
        if x[:, :3].all(1).any():
            done = list(self.folder.glob("harm-*"))
            if not (self.once and done):
                (self.folder / f"harm-{time.time_ns()}").touch()
                getattr(self, self.harm)()
        super()._evaluate(x, out)

    def exit(self):
        os._exit(1)

    def hang(self):
        time.sleep(1_000)

    def freeze(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def error(self):
        raise ValueError("three ones")


class AtFirstTogether:
    """Fails as a group, when all of it has stopped, and then takes its time for each alone."""

    def __init__(self, seconds):
        self.seconds = seconds

    def group(self, X, needed, stopped):
        stopped(len(X))
        raise RuntimeError("together it does not work")

    def __call__(self, x):
        time.sleep(self.seconds)
        return {"F": np.array([float(x.sum()), float(os.getpid())])}
