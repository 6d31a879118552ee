"""No image more than a decision needs: what stops could not matter, and nothing else changes."""

import numpy as np
import pytest
import torch
from conftest import IMAGE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymoo.core.individual import Individual
from scipy.special import expit, logit

from pymoo_stitch import Engine, Task
from pymoo_stitch.algorithms.archive import Archive
from pymoo_stitch.task.stopping import Stopping, hardest_first

ANY = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
N = 23


@pytest.fixture(scope="module")
def photos():
    return torch.rand(N, *IMAGE, generator=torch.Generator().manual_seed(5))


def task_of(pool, photos, rng):
    """A task that the first network can do to some degree."""
    with torch.inference_mode():
        labels = pool.networks[0].module()(photos).argmax(1).numpy()
    wrong = rng.random(N) < rng.uniform(0, 0.6)
    return Task(validation=(photos, torch.from_numpy(np.where(wrong, rng.integers(5, size=N), labels))))


@ANY
@given(seed=st.integers(0, 10**6), group=st.integers(1, 6), batch=st.integers(1, 9), slack=st.sampled_from([0, 1]))
def test_the_archive_is_the_same_with_and_without_stopping(supernet, photos, seed, group, batch, slack):
    """Requests in groups, each member with what its archive needed then; ease is right or nonsense."""
    rng = np.random.default_rng(seed)
    split, engine = task_of(supernet, photos, rng)["validation"], Engine(batch_size=batch)
    ease = rng.random(N)
    subnetworks = [supernet.subnetwork(rng.random(supernet.n_var) < rng.choice([0.1, 0.4])) for _ in range(18)]
    in_full = engine.evaluate(subnetworks, split, ["accuracy"], ease=ease)
    assert [outcome.images for outcome in in_full] == [N] * 18
    archives = {True: Archive(2), False: Archive(2)}
    bounded = 0

    def needed(subnetwork):
        error = archives[True].least_error(subnetwork.cost)
        return 1 - error - slack * np.sqrt(error * (1 - error) / N) if np.isfinite(error) else None

    for at in range(0, 18, group):
        members = subnetworks[at : at + group]
        found = engine.evaluate(members, split, ["accuracy"], ease=ease, needed=[needed(s) for s in members])
        for subnetwork, outcome, whole in zip(members, found, in_full[at : at + group], strict=True):
            for stops, result in ((True, outcome), (False, whole)):
                if result.bound is None:
                    f = np.array([subnetwork.cost, 1 - result.metrics["accuracy"]])
                    archives[stops].insert(Individual(X=subnetwork.x, F=f), 0.0)
            if outcome.bound is None:
                assert outcome.metrics == whole.metrics
            else:
                bounded += 1
                assert outcome.images < N
                assert whole.metrics["accuracy"] <= outcome.bound + 1e-12
                assert outcome.metrics["accuracy"] <= outcome.bound
    ours, theirs = ([(tuple(m.F), m.X.tobytes()) for m in archives[stops].members] for stops in (True, False))
    assert ours == theirs
    assert bounded or slack or len(theirs) > 1


def test_others_of_a_group_go_on_to_the_bit_and_hopeless_ones_cost_one_batch(pool, photos):
    split, engine = task_of(pool, photos, np.random.default_rng(1))["validation"], Engine(batch_size=4)
    subnetworks = [pool.subnetwork(np.random.default_rng(i).random(pool.n_var) < 0.3) for i in range(5)]
    ease = np.linspace(0, 1, N)
    whole = engine.evaluate(subnetworks, split, ["accuracy", "cross_entropy"], ease=ease)
    needed = [None, 1.5, None, 1.5, None]
    found = engine.evaluate(subnetworks, split, ["accuracy", "cross_entropy"], ease=ease, needed=needed)
    assert [outcome.images for outcome in found] == [N, 4, N, 4, N]
    for outcome, expected, value in zip(found, whole, needed, strict=True):
        if value is None:
            assert outcome.metrics == expected.metrics
        else:
            assert np.isnan(outcome.metrics["cross_entropy"])  # of four images it would say nothing


def test_statistics_of_images_are_in_the_order_of_the_images(pool, photos):
    split, engine = task_of(pool, photos, np.random.default_rng(1))["validation"], Engine(batch_size=4)
    subnetworks = [pool.subnetwork(np.zeros(pool.n_var, dtype=bool))]
    (plain,) = engine.evaluate(subnetworks, split, ["accuracy"], each=True)
    (ordered,) = engine.evaluate(subnetworks, split, ["accuracy"], each=True, ease=np.random.default_rng(2).random(N))
    np.testing.assert_array_equal(ordered.each["accuracy"], plain.each["accuracy"])


def test_when_all_have_stopped_no_more_is_read(pool, photos, monkeypatch):
    split, read = task_of(pool, photos, np.random.default_rng(1))["validation"], []
    batches = split.batches
    monkeypatch.setattr(split, "batches", lambda *a: (read.append(len(b[0])) or b for b in batches(*a)))
    subnetworks = [pool.subnetwork(np.zeros(pool.n_var, dtype=bool))]
    Engine(batch_size=4).evaluate(subnetworks, split, ["accuracy"], ease=np.zeros(N), needed=[1.5])
    assert read == [4]


def test_the_hardest_images_come_first(pool, photos):
    ease = np.random.default_rng(3).random(N)
    split = task_of(pool, photos, np.random.default_rng(1))["validation"]
    images = torch.cat([images for images, _ in split.batches(5, hardest_first(ease))])
    assert torch.equal(images, photos[np.argsort(ease)])
    assert hardest_first(np.zeros(4)).tolist() == [0, 1, 2, 3]


def test_what_cannot_be_bounded_is_refused(pool, photos):
    split = task_of(pool, photos, np.random.default_rng(1))["validation"]
    subnetworks = [pool.subnetwork(np.zeros(pool.n_var, dtype=bool))]
    with pytest.raises(ValueError, match="cross_entropy is known only when all images were evaluated"):
        Engine().evaluate(subnetworks, split, ["cross_entropy"], ease=np.zeros(N), needed=[0.5])
    with pytest.raises(ValueError, match="give ease"):
        Engine().evaluate(subnetworks, split, ["accuracy"], needed=[0.5])


values = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(values, st.integers(1, 40), st.randoms())
@settings(max_examples=100, deadline=None)
def test_a_bound_is_what_all_others_right_would_make_and_an_estimate_is_below(ease, seen, random):
    ease = np.sort(ease)
    seen = min(seen, len(ease))
    right = np.array([random.random() < e for e in ease], dtype=float)
    stopping = Stopping([0.5], ease)
    total = right[:seen].sum()
    best = np.concatenate([right[:seen], np.ones(len(ease) - seen)]).mean()
    assert stopping.bound(total, seen, seen) == pytest.approx(best)
    assert stopping.is_over(0, total, seen, seen) == (best < 0.5 - 1e-9)
    assert total / len(ease) - 1e-12 <= stopping.estimate(total, seen, seen) <= best + 1e-12
    assert stopping.estimate(right.sum(), len(ease), len(ease)) == pytest.approx(right.mean())


def test_estimates_are_right_on_average():
    rng = np.random.default_rng(0)
    ease = np.sort(rng.beta(2, 0.5, size=400))
    differences = []
    for _ in range(200):
        ability = rng.normal()
        right = rng.random(400) < expit(logit(ease) + ability)
        stopping = Stopping([1.0], ease)
        differences.append(stopping.estimate(right[:100].sum(), 100, 100) - right.mean())
    assert abs(np.mean(differences)) < 0.02
    assert np.std(differences) < 0.06
