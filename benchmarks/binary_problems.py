"""Binary problems whose optima are known, and a synthetic stitching space. All objectives are minimised."""

import pathlib

import numpy as np
from pymoo.core.problem import Problem

from pymoo_stitch.algorithms import BinarySampling


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


class TwoChains(Binary):
    """A synthetic stitching space: two chains of layers with a switch in each after every layer, and one for the
    output.

    Variables 2k and 2k+1 say that what follows layer k in the first and in the second chain reads the stitch from the
    other chain's layer k. The last two select the output: the first that is 1 the second chain or the ensemble, none
    the first chain. The second chain costs more and is better. Each stitch adds an error, the more the larger the error
    is that it builds on. F = (cost, 1 − accuracy), both as parts of the ensemble's cost and of 1.
    """

    min_accuracy = None  # a stitch problem, with the accuracy threshold of those

    def __init__(self, depth, seed):
        super().__init__(2 * depth + 2)
        rng = np.random.default_rng(seed)
        self.depth = depth
        layer_cost = rng.lognormal(sigma=0.5, size=(depth, 2)) * [1, 3]
        self.layer_cost = (layer_cost / layer_cost.sum()).tolist()
        self._costs = np.ravel(self.layer_cost)
        self._switches = [sum(1 << 2 * k + chain for k in range(depth)) for chain in (0, 1)]
        self.gain = rng.dirichlet(np.ones(depth))  # what each layer of the second chain is worth
        self.stitch_error = 0.02 * rng.lognormal(sigma=1, size=(depth, 2))  # by the chain it leads into
        self.stitch_cost = 0.002
        self.sampling = BinarySampling(min(0.5, 6.18 / self.n_var), n_choices=2)
        self.hv_ref_point = np.array([1.1, 1.0])

    def normalize(self, f):
        return f / self.hv_ref_point

    def chains(self, x):
        """The chains after the last layer that the output reads."""
        return [1] if x[-2] else [0, 1] if x[-1] else [0]

    def routes(self, x):
        """From the last layer to the first, for each chain that the output reads: at which chain's switch a route is,
        which chain's layer comes before it, and whether a stitch is between."""
        x = np.asarray(x, dtype=bool).tolist()
        for chain in self.chains(x):
            route = []
            for k in range(self.depth - 1, -1, -1):
                stitched = x[2 * k + chain]
                route.append((k, chain, chain ^ stitched, stitched))
                chain ^= stitched
            yield route

    def outline(self, x):
        """Key, active mask and cost: all that is known without evaluating it, from stitch to stitch. Bit 2k + c is the
        first or second chain's layer k, or the switch after it."""
        x = np.asarray(x, dtype=bool)
        bits = int.from_bytes(np.packbits(x, bitorder="little").tobytes(), "little")
        active = (1 if x[-2] else 3) << 2 * self.depth
        layers = stitches = 0
        for chain in self.chains(x):
            switch = 2 * self.depth - 2 + chain
            while switch >= 0:
                left = self._switches[chain] & ((2 << switch) - 1)
                stitch = (bits & left).bit_length() - 1
                met = (active & left).bit_length() - 1  # from there on as the other route
                passed = left >> max(stitch, met) + 1 << max(stitch, met) + 1
                active |= passed
                layers |= passed
                if stitch <= met:
                    break
                active |= 1 << stitch
                stitches |= 1 << stitch
                layers |= 1 << (stitch ^ 1)
                chain ^= 1
                switch = (stitch ^ 1) - 2
        mask = _unpacked(active, self.n_var)
        cost = _unpacked(layers, 2 * self.depth) @ self._costs + self.stitch_cost * stitches.bit_count()
        return f"{bits & active:x}", mask, float(cost)

    def key(self, x):
        return self.outline(x)[0]

    def active(self, x):
        return self.outline(x)[1]

    def cost(self, x):
        """The first objective, which takes no evaluation."""
        return self.outline(x)[2]

    def f(self, x):
        return np.array([self.one(row) for row in x])

    def one(self, x):
        accuracies, paths = [], []
        for route in self.routes(x):
            path = np.array([used for _, _, used, _ in reversed(route)])
            error = 0.0
            for k, _, used, stitched in reversed(route):
                if stitched:
                    error += self.stitch_error[k, used ^ 1] * (1 + 5 * error)
            accuracies.append(max(0.1, 0.7 + 0.15 * self.gain[path == 1].sum() - error))
            paths.append(path)
        bonus = 0.04 * np.mean(paths[0] != paths[1]) if len(paths) == 2 else 0.0
        return self.cost(x), 1 - min(0.99, np.mean(accuracies) + bonus)


def _unpacked(bits, n):
    packed = np.frombuffer(bits.to_bytes(-(-n // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little").view(bool)
