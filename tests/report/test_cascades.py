"""Which cascade is chosen: the plain one, unless a stitched one is surely better, or cheaper and as good."""

import numpy as np
import pytest
import torch

from pymoo_stitch.report.cascades import choose_cascade
from pymoo_stitch.supernet import JointCosts
from pymoo_stitch.task.cascading import Predictions, all_cascades, evaluate, single_networks

N = 1_600


@pytest.fixture(scope="module")
def candidates(pair):
    """The three references, and networks with one stitch."""
    return [pair.subnetwork(x) for x in [*pair.references.values(), *pair.one_stitch()[::3]]]


@pytest.fixture(scope="module")
def costs(candidates):
    return JointCosts(candidates)


def predictions(seed, count, spoilt, n=2 * N, better=()):
    """Two networks, the second cheaper and less often right, and their mean; others are one of the two, with noise for
    a fraction of images. All have difficulties with the same images. Those that are better are less often wrong."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (n,), generator=generator)
    right = torch.nn.functional.one_hot(labels, 5).float()
    easy = 4 * torch.rand(n, 1, generator=generator)
    noise = torch.randn(2, n, 5, generator=generator)
    one, two = 1.5 * easy * right + noise[0], easy * right + noise[1]
    rows = [one, two, (one + two) / 2]
    for i in range(3, count):
        fraction = torch.rand(n, 1, generator=generator) < spoilt
        base = (one, two)[i % 2] + 2 * right * (i in better)
        rows.append(torch.where(fraction, torch.randn(n, 5, generator=generator), base))
    return Predictions(torch.stack(rows), labels)


def halves(found):
    return found.take(np.arange(N)), found.take(np.arange(N, 2 * N))


def test_plain_cascades_are_the_references_and_two_of_them(candidates, costs):
    selection, _ = halves(predictions(0, len(candidates), 0.05))
    table = all_cascades(selection, costs, of=[0, 1, 2])
    assert table.made_of([0, 1, 2]).all()
    assert {tuple(stages) for stages in table.stages if stages[1] >= 0} == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }
    assert (table.stages[:3, 0] == [0, 1, 2]).all()
    every = all_cascades(selection, costs, at_most=costs.alone[0])
    assert every.costs.max() <= costs.alone[0]
    assert len(every) > len(table)
    assert not every.made_of([0, 1, 2]).all()


def test_a_plain_cascade_of_three_stages_is_chosen_where_asked(candidates, costs):
    selection, _ = halves(predictions(0, 3, 0))
    values = {}
    for n_stages in (2, 3):
        choice = choose_cascade(selection, JointCosts(candidates[:3]), [0, 1, 2], at_most=np.inf, n_stages=n_stages)
        plain = all_cascades(selection, JointCosts(candidates[:3]), n_stages=n_stages)
        assert not choice.is_stitched
        assert choice.table.values[0] == plain.values.max()
        values[n_stages] = choice.table.values[0]
    assert values[3] >= values[2]


def test_stitched_stages_that_are_worse_do_not_win_by_luck(candidates, costs):
    """Noise in a tenth of the images, and the choice of the best among thousands: on other images what is chosen is not
    worse than the plain cascade, as it is where the best is taken."""
    budget = 0.9 * costs.alone[2]
    lost, lost_by_greed = [], []
    for seed in range(10):
        selection, test = halves(predictions(seed, len(candidates), 0.1))
        choice = choose_cascade(selection, costs, [0, 1, 2], at_most=budget)
        chosen, plain = evaluate(choice.table, test, costs).values
        lost.append(plain - chosen)
        every = all_cascades(selection, costs, at_most=budget)
        every = every.take(~every.made_of([0, 1, 2]))
        best = every.take([np.argmin(every.errors)])
        lost_by_greed.append(plain - evaluate(best, test, costs).values[0])
        assert choice.table.costs[0] <= budget
        assert choice.is_stitched != bool(choice.table.made_of([0, 1, 2])[0])
    assert np.mean(lost) < 0.002
    assert np.mean(lost_by_greed) > np.mean(lost)


def test_a_stitched_stage_that_is_better_is_chosen(candidates, costs):
    good = len(candidates) - 1
    selection, test = halves(predictions(1, len(candidates), 0.0, better=[good]))
    budget = costs.pairs[1, good]
    choice = choose_cascade(selection, costs, [0, 1, 2], at_most=budget)
    assert choice.is_stitched
    assert choice.against.verdict == "better than"
    assert good in choice.table.stages[0]
    chosen, plain = evaluate(choice.table, test, costs).values
    assert chosen > plain + 0.01


def test_a_budget_that_pays_for_nothing_is_refused(candidates, costs):
    selection, _ = halves(predictions(1, len(candidates), 0.0))
    assert single_networks(selection, costs).costs.min() > 10
    with pytest.raises(ValueError, match="costs at most 10 multiply-adds; the cheapest costs"):
        choose_cascade(selection, costs, [0, 1, 2], at_most=10)
