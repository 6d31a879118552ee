"""Which worker computes on which GPU."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pymoo_stitch.runners.placement import Place, devices, gpu_of, misplaced, own_gpu, slots, visible_gpus


def test_gpus_are_those_that_the_environment_allows(monkeypatch):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2, GPU-8f,0"}) == ["2", "GPU-8f", "0"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert visible_gpus({}) == ["0", "1"]


def test_workers_are_spread_over_gpus():
    gpus = ["2", "GPU-8f", "0"]
    assert [gpu_of(i, gpus) for i in range(5)] == ["2", "GPU-8f", "0", "2", "GPU-8f"]


@pytest.mark.parametrize(
    ("environment", "gpus", "own"),
    [
        ({}, 0, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0, None),
        ({}, 4, "0"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 1, "3"),
        ({"CUDA_VISIBLE_DEVICES": "2,3,0,1"}, 4, "2"),  # dask-cuda's third worker of four
        ({"CUDA_VISIBLE_DEVICES": "MIG-41b3,MIG-70c2"}, 1, "MIG-41b3"),
    ],
)
def test_a_worker_computes_on_the_first_gpu_that_it_sees(environment, gpus, own):
    assert own_gpu(environment, gpus) == own


def rotated(host, count, threads=1):
    """The workers of a host as dask-cuda starts them."""
    return [Place(f"{host}-{i}", host, str(i), count, threads) for i in range(count)]


def test_one_worker_for_each_gpu_is_well_placed():
    places = [*rotated("10.0.0.1", 4), *rotated("10.0.0.2", 4)]
    assert misplaced(places) == []
    assert [len(group) for group in devices(places).values()] == [1] * 8


def test_workers_that_share_the_only_gpu_they_see_are_meant_to():
    places = [Place(f"w{i}", "10.0.0.1", "GPU-8f", 1, 1) for i in range(5)]
    assert misplaced(places) == []
    assert list(devices(places)) == ["10.0.0.1 GPU GPU-8f"]


def test_workers_that_leave_gpus_idle_are_named():
    places = [Place(f"w{i}", "10.0.0.1", "0", 4, 1) for i in range(4)]  # `dask worker --nworkers 4`
    (sentence,) = misplaced(places)
    assert sentence.startswith("w0, w1, w2, w3 all compute on 10.0.0.1 GPU 0, though each sees 4 GPUs.")
    assert "CUDA_VISIBLE_DEVICES=0" in sentence


def test_a_worker_that_finds_no_gpu_beside_others_that_do_is_named():
    places = [*rotated("10.0.0.1", 2), Place("lost", "10.0.0.2", None, 0, 1)]
    (sentence,) = misplaced(places)
    assert sentence.startswith("lost compute on CPUs, others on GPUs.")
    assert misplaced([places[-1]]) == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 40))
def test_work_is_spread_evenly_and_nobody_gets_more_than_he_can_do(threads, count):
    places = [Place(str(i), "10.0.0.1", "0", 1, n) for i, n in enumerate(threads)]
    given_to = slots(places, count)
    assert len(given_to) == min(count, sum(threads))
    got = [given_to.count(place) for place in places]
    assert all(n <= place.threads for n, place in zip(got, places, strict=True))
    free = [n for n, place in zip(got, places, strict=True) if n < place.threads]
    assert all(n >= max(got) - 1 for n in free)


def test_names_in_the_environment_of_this_process_do_not_matter(monkeypatch):
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "7")
    assert own_gpu({}, 1) == "0"
