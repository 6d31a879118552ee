"""Many objectives as one: a weight vector for each individual."""

import numpy as np


def spread_weights(n: int, n_obj: int, random_state: np.random.Generator) -> np.ndarray:
    """`n` weight vectors (n, n_obj) that sum to 1: evenly spaced with both axes for two objectives, random beyond."""
    if n_obj > 2:
        return random_state.dirichlet(np.ones(n_obj), n)
    first = np.linspace(0, 1, n) if n > 1 else np.array([0.5])
    return np.ones((n, 1)) if n_obj == 1 else np.column_stack([first, 1 - first])


def tschebysheff(f: np.ndarray, weights: np.ndarray, ideal: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """max_i w_i (f_i − ideal_i) / (worst_i − ideal_i), smaller is better; all (..., n_obj), an objective without a
    range counts as it is."""
    extent = worst - ideal
    return (weights * (f - ideal) / np.where(extent > 0, extent, 1)).max(-1)


def largest_error(cost: float, f: np.ndarray, weights: np.ndarray, ideal: np.ndarray, worst: np.ndarray) -> float:
    """The largest second objective with which a solution of this first one is not worse than `f` (2,); −∞ if it is with
    any."""
    extent = np.where(worst > ideal, worst - ideal, 1)
    value = tschebysheff(f, weights, ideal, worst)
    if weights[0] * (cost - ideal[0]) / extent[0] > value:
        return -np.inf
    return np.inf if weights[1] == 0 else float(ideal[1] + value * extent[1] / weights[1])


def reassign(
    f: np.ndarray,
    excess: np.ndarray,
    weights: np.ndarray,
    ideal: np.ndarray,
    worst: np.ndarray,
    random_state: np.random.Generator,
) -> np.ndarray:
    """Which weight each individual gets: in random order, each weight goes to the best individual that has none yet.

    Those of a single objective come first. While the population does not reach the ends of the front, weights beside
    them ask for the same individual, and one on its way to an end would be called back.

    :param f: objectives (n, n_obj).
    :param excess: the violation beyond what is tolerated (n,), which counts before the objectives.
    :return: the permutation (n,) with the number of each individual's weight.
    """
    scores = tschebysheff(f[None], weights[:, None], ideal, worst)
    by_excess = np.argsort(excess, kind="stable")  # among equals of both, the first
    free = by_excess
    assigned = np.empty(len(f), dtype=int)
    order = random_state.permutation(len(weights))
    for weight in order[np.argsort(weights[order].max(1) < 1, kind="stable")]:
        least = free[excess[free] == excess[free[0]]]
        best = least[np.argmin(scores[weight, least])]
        assigned[best] = weight
        free = free[free != best]
    return assigned
