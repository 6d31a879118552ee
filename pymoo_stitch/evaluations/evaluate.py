"""What runners call."""

from typing import Any

import numpy as np
from pymoo.core.problem import Problem


class Evaluate:
    """What a runner calls: all that the problem says about one genotype, or about several together. It does not use the
    problem's own runner, so that a runner may call it."""

    def __init__(self, problem: Problem):
        self.problem = problem

    def __call__(self, x: np.ndarray) -> dict[str, Any]:
        return self.group(x[None])[0]

    def group(self, X: np.ndarray) -> list[dict[str, Any]]:
        problem, outs = self.problem, []
        if problem.elementwise:
            for x in X:
                out: dict[str, Any] = {}
                problem._evaluate(x, out)
                outs.append({name: np.array([value]) for name, value in out.items()})
        else:
            out = {}
            problem._evaluate(X, out)
            outs.append(out)
        formatted = [problem._format_dict(out, len(X) // len(outs), ["F", "G", "H"]) for out in outs]
        return [
            {name: values[i] for name, values in out.items()} for out in formatted for i in range(len(X) // len(outs))
        ]
