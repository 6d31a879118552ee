"""Journals of searches that never were: thousands of evaluations at once, which look like those of two networks for
digits."""

from datetime import UTC, datetime

import numpy as np

from pymoo_stitch.evaluations import Journal, Row

N_VAR, BEGUN = 42, 1_700_000_000.0

SCALE = {
    "references": [["small", 100_000.0, 0.065], ["large", 600_000.0, 0.04], ["both", 700_000.0, 0.032]],
    "ref_point": [770_000.0, 0.1],
    "links": N_VAR - 2,
}


def begin(path, seed=1, budget=1_000, scale=SCALE, algorithm="AsyncNSGA2"):
    """A journal in which a run has begun."""
    journal = Journal(path)
    about = {
        "problem": {"class": "StitchProblem", "n_var": N_VAR, "task": {"split": "validation", "metrics": ["accuracy"]}},
        "algorithm": {"class": algorithm, "pop_size": 50},
        "seed": seed,
        "budget": budget,
        "begun": datetime.fromtimestamp(BEGUN, UTC).isoformat(),
        "versions": {"python": "3"},
        "origin": {"name": "digits", "options": {}},
        "scale": scale,
    }
    journal.begin(about, 2, 0, 0)
    return journal


def rows(first, count, seed=1, more=lambda number: {}):
    """Evaluations, the better the later; of 2 workers, in pairs that are evaluated together."""
    random = np.random.default_rng([seed, first])
    for number in range(first, first + count):
        x = random.random(N_VAR) < 0.2
        cost = round(random.uniform(100_000, 700_000))
        error = round(0.03 + 10_000 / cost + random.exponential(0.05 + 10 / (number + 50)), 6)
        begun = BEGUN + 1 + number // 4
        result = {"F": np.array([cost, error]), "G": np.empty(0), "H": np.empty(0), "failed": "", "accuracy": 1 - error}
        result |= {"worker": str(number // 2 % 2), "begun": begun, "ended": begun + 0.9, "seconds": 0.45}
        result |= {"active": random.random(N_VAR) < 0.7} | more(number)
        notes = {"predicted": error + random.normal(0, 0.01), "spread": 0.01, "screened": 3 * number}
        yield Row(number, x, f"s{seed:03d}" + f"{number:028d}"[::-1], result, 0.0, notes)


def make(path, count, seed=1, more=lambda number: {}, **about):
    """A journal of so many evaluations.

    :param more: what else is in the result of an evaluation, by its number."""
    journal = begin(path, seed, **about)
    journal.append(0, list(rows(0, count, seed, more)))
    journal.close()
    return path
