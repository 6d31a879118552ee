"""A search on hosts of their own, and what happens to it when these fail. To run them, as root, with what each fault costs:

    pytest -m hosts -n 0 -s tests/hosts
"""

import time

import pytest
from cluster import cluster

from netns import missing

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(reason := missing()), reason=reason or "")]

BUDGET, SECONDS = 240, 0.25
LONG, LONG_SECONDS = 240, 1.0


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The utilisation of a run without a fault."""
    with cluster(tmp_path_factory.mktemp("usual")) as one:
        started(one)
        one.ends(one.search(BUDGET, SECONDS))
        rows = one.check(BUDGET)
        assert rows == 0
        return one


def started(one):
    one.start_scheduler()
    for host in one.workers:
        one.start_worker(host)
    return one


@pytest.mark.parametrize("seconds", [5, 60])
def test_a_workers_link_is_cut_and_restored(tmp_path, seconds):
    budget, each = (BUDGET, SECONDS) if seconds < 30 else (LONG, LONG_SECONDS)
    with cluster(tmp_path) as one:
        started(one)
        search = one.search(budget, each)
        one.wait_for(budget // 6)
        begin = time.time()
        one.workers[0].cut()
        time.sleep(seconds)
        one.workers[0].restore()
        end = time.time()
        one.ends(search)
        print("\n" + one.cost(f"link of one of two worker hosts cut for {seconds} s", budget, each, (begin, end)))
