"""A search on hosts of their own, and what happens to it when these fail. To run them, as root, with what each fault
costs:

pytest -m hosts -n 0 -s tests/hosts
"""

import shutil
import signal
import time

import pytest
from cluster import POP_SIZE, SLOTS, cluster
from netns import missing, run, small_disk

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(reason := missing()), reason=reason or "")]

BUDGET, SECONDS = 240, 0.25
LONG, LONG_SECONDS = 240, 1.0
"""Where a fault is noticed after a minute only: the search is not to end before that, waiting for what a lost host has
begun."""


def started(one, workers=None):
    """The scheduler and workers of a cluster that has nothing yet."""
    one.start_scheduler()
    for host in one.workers if workers is None else workers:
        one.start_worker(host)
    return one


def test_without_a_fault_nothing_is_repeated(tmp_path):
    with cluster(tmp_path) as one:
        one.ends(started(one).search(BUDGET, SECONDS))
        one.tell("none", BUDGET, SECONDS, (0.0, time.time()))
        assert one.check(BUDGET) == 0


@pytest.mark.parametrize("seconds", [5, 60])
def test_a_workers_link_is_cut_and_restored(tmp_path, seconds):
    budget, each = (BUDGET, SECONDS) if seconds < 30 else (LONG, LONG_SECONDS)
    with cluster(tmp_path) as one:
        search = started(one).search(budget, each)
        one.wait_for(budget // 6)
        begin = time.time()
        one.workers[0].cut()
        time.sleep(seconds)
        one.workers[0].restore()
        end = time.time()
        one.ends(search)
        one.tell(f"link of a worker host cut for {seconds} s", budget, each, (begin, end))
        assert one.check(budget) <= POP_SIZE


def test_a_workers_link_is_cut_for_good(tmp_path):
    with cluster(tmp_path) as one:
        search = started(one).search(LONG, LONG_SECONDS)
        one.wait_for(LONG // 6)
        begin = time.time()
        one.workers[0].cut()
        one.ends(search)
        one.tell("link of a worker host cut for good", LONG, LONG_SECONDS, (begin, time.time()))
        assert one.check(LONG) <= POP_SIZE


def test_a_workers_link_is_cut_as_the_search_begins(tmp_path):
    with cluster(tmp_path) as one:
        started(one)
        for host in one.workers:
            one.wait_until(lambda host=host: "Registered to:" in host.said())
        begin = time.time()
        one.workers[0].cut()
        one.ends(one.search(BUDGET, SECONDS))
        assert "Waiting for every worker to receive the problem" in one.head.said()
        one.tell("link of a worker host cut for good before the search", BUDGET, SECONDS, (begin, time.time()))
        assert one.check(BUDGET) == 0


def test_packets_are_lost_and_late(tmp_path):
    """Also without netem, which many kernels lack."""
    budget, each = LONG, LONG_SECONDS
    with cluster(tmp_path) as one:
        search = started(one).search(budget, each)
        one.wait_for(budget // 6)
        begin = time.time()
        one.workers[0].impair(delay=0.2, loss=0.05)
        time.sleep(60)
        one.workers[0].unimpair()
        end = time.time()
        one.ends(search)
        one.tell("what a worker host sends is 200 ms late, and 5 % of it lost, for 60 s", budget, each, (begin, end))
        assert one.check(budget) <= POP_SIZE


def test_a_worker_host_stops_answering(tmp_path):
    """Its kernel acknowledges what arrives, so that no connection breaks: the scheduler goes by heartbeats."""
    with cluster(tmp_path, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="20s") as one:
        search = started(one).search(LONG, LONG_SECONDS)
        one.wait_for(LONG // 6)
        begin = time.time()
        one.workers[0].signal(signal.SIGSTOP)
        one.ends(search)
        one.tell("worker host stopped (SIGSTOP), worker-ttl 20 s", LONG, LONG_SECONDS, (begin, time.time()))
        assert one.check(LONG) <= POP_SIZE


def test_workers_join_late_and_leave_politely(tmp_path):
    with cluster(tmp_path) as one:
        first, second = one.workers
        started(one, [])
        leaving = one.start_worker(first, restarted=False)
        search = one.search(LONG, LONG_SECONDS)
        one.wait_for(LONG // 12)
        begin = time.time()
        one.start_worker(second)
        one.wait_until(lambda: list(one.log.glob(f"{second.name}-*")))
        first.signal(signal.SIGTERM)
        leaving.wait(timeout=60)
        one.ends(search)
        one.tell("worker host joins late, the other leaves (SIGTERM)", LONG, LONG_SECONDS, (begin, time.time()))
        assert one.check(LONG) <= SLOTS * 8  # what it had begun, in groups


def test_the_scheduler_is_killed_and_started_again(tmp_path):
    with cluster(tmp_path) as one:
        search = started(one).search(BUDGET, SECONDS)
        one.wait_for(BUDGET // 3)
        begin = time.time()
        one.scheduler.end()
        assert search.wait(timeout=120) == 1
        said = one.head.said()
        assert "the connection to the Dask scheduler is lost" in said
        assert "the same run again goes on from there" in said
        kept = one.count()
        assert kept >= BUDGET // 3
        one.start_scheduler()  # the workers' loop starts them again
        said = one.ends(one.search(BUDGET, SECONDS))
        assert f"({kept:,} of them from the journal" in said
        one.tell("scheduler killed, started again, same command", BUDGET, SECONDS, (begin, time.time()))
        assert one.check(BUDGET) <= POP_SIZE


def test_the_head_nodes_disk_is_full_and_has_room_again(tmp_path):
    with cluster(tmp_path) as one, small_disk(tmp_path / "disk", "16m") as disk:
        one.journal = disk / "run.sqlite"
        search = started(one).search(BUDGET, SECONDS)
        one.wait_for(BUDGET // 3)
        begin, filler = time.time(), disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        assert search.wait(timeout=120) == 1
        assert "no space left on the disk" in one.head.said()
        filler.unlink()
        kept = one.count()
        said = one.ends(one.search(BUDGET, SECONDS))
        assert f"({kept:,} of them from the journal" in said
        one.tell("disk of the head node full, room made, same command", BUDGET, SECONDS, (begin, time.time()))
        assert one.check(BUDGET) <= POP_SIZE


# --------------------------------------------------------------------------------------------------------- who may talk


def certificates(folder):
    """Dask's settings for TLS with certificates of an authority of its own, and a client's that another one has
    signed."""
    for authority, name in (("ours", "member"), ("theirs", "stranger")):
        ca, key, request, signed = (folder / f"{n}" for n in (authority, f"{name}.key", f"{name}.csr", f"{name}.pem"))
        new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
        run(*new, "-x509", "-days", "1", "-subj", f"/CN={authority}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem")
        run(*new, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        sign = ["openssl", "x509", "-req", "-days", "1", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial"]
        run(*sign, "-in", str(request), "-out", str(signed))

    def settings(name):
        tls = {"CA_FILE": str(folder / "ours.pem")}
        for role in ("SCHEDULER", "WORKER", "CLIENT"):
            tls |= {f"{role}__CERT": str(folder / f"{name}.pem"), f"{role}__KEY": str(folder / f"{name}.key")}
        return {f"DASK_DISTRIBUTED__COMM__TLS__{option}": value for option, value in tls.items()}

    return settings("member"), settings("stranger")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_with_tls_whoever_has_no_certificate_is_turned_away(tmp_path):
    ours, theirs = certificates(tmp_path)
    with cluster(tmp_path, protocol="tls", **ours) as one:
        one.ends(started(one).search(40, 0.05))
        assert one.check(40) == 0
        limit = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}
        stranger = one.search(40, 0.05, tmp_path / "stranger.sqlite", **theirs, **limit)
        assert stranger.wait(timeout=300) == 1
        one.environment = {}
        plain = one.search(40, 0.05, tmp_path / "plain.sqlite", **limit)
        assert plain.wait(timeout=300) == 1
        one.protocol = "tcp"
        unencrypted = one.search(40, 0.05, tmp_path / "unencrypted.sqlite", **limit)
        assert unencrypted.wait(timeout=300) == 1
        assert one.head.said().count("there is no Dask scheduler") >= 2
        assert not any(one.count(tmp_path / f"{name}.sqlite") for name in ("stranger", "plain", "unencrypted"))
        assert one.calls()[1].total() == 40


def test_nothing_listens_on_an_address_that_was_not_asked_for(tmp_path):
    with cluster(tmp_path) as one:
        search = started(one).search(BUDGET, SECONDS)
        one.wait_for(BUDGET // 3)
        found = {host.name: host.listening() for host in (one.scheduler, *one.workers, one.head)}
        one.ends(search)
    asked = {host.name: {host.address} for host in (one.scheduler, *one.workers)}
    assert found == asked | {one.head.name: set()}
