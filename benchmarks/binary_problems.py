"""Binary problems whose optima are known, and a synthetic stitching space. All objectives are minimised."""

import pathlib

import numpy as np
from pymoo.core.problem import Problem

from pymoo_stitch.sampling import BinarySampling


class Binary(Problem):
    """A problem of boolean variables, given by its function of genotypes (n, n_var)."""

    def __init__(self, n_var, n_obj=2):
        super().__init__(n_var=n_var, n_obj=n_obj, xl=0, xu=1, vtype=bool)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = self.f(np.asarray(x, dtype=bool))


class ZeromaxOnemax(Binary):
    """(−ones, −zeros): every genotype is optimal, every number of ones a point of the front."""

    def f(self, x):
        ones = x.sum(1)
        return np.column_stack([-ones, ones - self.n_var])

    def _calc_pareto_front(self):
        ones = np.arange(self.n_var + 1)
        return np.column_stack([-ones, ones - self.n_var]).astype(float)


class LOTZ(Binary):
    """(−leading ones, −trailing zeros)."""

    def f(self, x):
        leading = np.logical_and.accumulate(x, axis=1).sum(1)
        trailing = np.logical_and.accumulate(~x[:, ::-1], axis=1).sum(1)
        return np.column_stack([-leading, -trailing])

    def _calc_pareto_front(self):
        leading = np.arange(self.n_var + 1)
        return np.column_stack([-leading, leading - self.n_var]).astype(float)


def trap(u):
    """The deceptive function of 5 bits with u ones."""
    return np.where(u == 5, 5, 4 - u)


class TrapInverseTrap(Binary):
    """Blocks of five along a random permutation: a trap in ones and a trap in zeros."""

    def __init__(self, n_var, seed):
        super().__init__(n_var)
        self.blocks = np.random.default_rng(seed).permutation(n_var).reshape(-1, 5)

    def f(self, x):
        ones = x[:, self.blocks].sum(2)
        return np.column_stack([-trap(ones).sum(1), -trap(5 - ones).sum(1)])

    def _calc_pareto_front(self):
        a, m = np.arange(self.n_var // 5 + 1), self.n_var // 5
        return -np.column_stack([5 * a + 4 * (m - a), 4 * a + 5 * (m - a)]).astype(float)


class BestOfTraps(Binary):
    """(−value, 0): the best of several trap functions, each with an optimum and a permutation of its own."""

    def __init__(self, path):
        number, *lines = pathlib.Path(path).read_text().splitlines()
        rows = [np.array(line.split(), dtype=int) for line in lines[: 3 * int(number)]]
        super().__init__(n_var=int(rows[0][0]))
        self.optima = [row.astype(bool) for row in rows[1::3]]
        self.blocks = [row.reshape(-1, 5) for row in rows[2::3]]

    def f(self, x):
        values = [
            trap((x == optimum)[:, blocks].sum(2)).sum(1)
            for optimum, blocks in zip(self.optima, self.blocks, strict=True)
        ]
        return np.column_stack([-np.max(values, axis=0), np.zeros(len(x))])

    def _calc_pareto_front(self):
        return np.array([[-self.n_var, 0.0]])
