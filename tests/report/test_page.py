"""The page of a report, without a browser: its data, that names in it are data, its size, and the server of runs in
progress."""

import hashlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from urllib.parse import quote

import made_journals
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journaled_run import search

from pymoo_stitch import Run
from pymoo_stitch.report import draw_subnetwork
from pymoo_stitch.report.drawing import subnetwork_drawing
from pymoo_stitch.report.page import html, journals
from pymoo_stitch.report.page.server import Server, Watched, _pace

NASTY = "</script><script>alert(1)</script><!-- script --><img src=x onerror=alert(2)>&\u2028\u2029"


def data_of(page):
    """The document in a page, as its script reads it."""
    (text,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


# ------------------------------------------------------------------------------------------------------------- the data


def test_the_document_says_what_the_journal_says(tmp_path):
    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 300))
    document = journals.document([run])
    (told,) = document["runs"]
    columns = told["evaluations"]
    assert columns["cost"] == run.F[:, 0].tolist()
    assert columns["error"] == pytest.approx(run.F[:, 1].tolist(), abs=1e-6)
    assert all(row.key.startswith(key) for row, key in zip(run.rows, columns["key"], strict=True))
    assert len(set(columns["key"])) == 300
    ones = run.X[:, :-2]  # the last two say which network's output
    assert columns["nonzero"] == ones.sum(1).tolist()
    assert columns["stitches"] == (ones & run.active[:, :-2]).sum(1).tolist()
    assert columns["predicted"] == pytest.approx(run.predicted[:, 0].tolist(), abs=1e-5)
    assert columns["seconds"] == pytest.approx(run.elapsed().tolist(), abs=0.01)
    curve = np.zeros(300)
    for place, value in zip(*told["hypervolume"], strict=True):
        curve[place:] = value
    assert curve == pytest.approx(run.hypervolume(np.array(made_journals.SCALE["ref_point"])), abs=1e-6)
    assert told["utilisation"]["workers"] == 2
    assert np.mean(told["utilisation"]["busy"]) == pytest.approx(0.9, abs=0.01)
    assert [member["name"] for member in document["members"]] == ["small", "large", "both"]
    assert "excluded" not in columns
    assert "images" not in columns


def test_what_failed_or_stopped_early_is_told_from_the_rest(tmp_path):
    def more(number):
        if number % 10 == 3:
            return {"failed": "it failed", "F": np.array([700_000.0, np.nan])}
        return {"images": 100, "bound": 0.2} if number % 10 == 4 else {"images": 1_200}

    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 40, more=more))
    (told,) = journals.document([run])["runs"]
    columns = told["evaluations"]
    assert told["failed"] == 4
    assert [columns["excluded"][i] for i in (2, 3, 4)] == [None, "failed", "bounded"]
    assert columns["error"][3] is None
    assert sum(columns["images"][5:10]) == 6_000


def test_a_journal_that_says_nothing_of_references(tmp_path):
    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 40, scale=None))
    document = journals.document([run])
    assert document["members"] == []
    assert document["problem"]["floor"] == 1.0
    assert "stitches" not in document["runs"][0]["evaluations"]
    assert document["runs"][0]["hypervolume"][1]


def test_metrics_of_which_less_is_better(tmp_path):
    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 20))
    assert journals.document([run])["problem"]["more_is_better"]
    other = made_journals.make(
        tmp_path / "other.sqlite", 20, more=lambda number: {"accuracy": 0.3, "F": np.array([9.0, 0.3])}
    )
    assert not journals.document([Run.read(other)])["problem"]["more_is_better"]


def test_runs_that_do_not_belong_together_are_refused(tmp_path):
    made = made_journals.make(tmp_path / "run.sqlite", 20)
    search("GOMEA", tmp_path / "chains.sqlite", budget=40)
    run = Run.read(tmp_path / "chains.sqlite")
    assert journals.document([run])["problem"]["metric"] == "second objective"
    with pytest.raises(ValueError, match=r"are runs of different problems: problem is StitchProblem"):
        Watched([made, run.path])
    about = run.about | {"problem": run.about["problem"] | {"n_obj": 3}}
    with pytest.raises(ValueError, match="has 3 objectives; a page shows two"):
        journals.document([replace(run, about=about)])


def test_a_drawing_as_data_has_all_that_the_figure_has(pair):
    x = np.zeros(pair.n_var, dtype=bool)
    x[[0, 3, -1]] = True
    subnetwork = pair.subnetwork(x)
    document = json.loads(json.dumps(subnetwork_drawing(subnetwork).document()))
    drawn = [(document["looks"][look], places) for look, *places in document["shapes"]]
    texts = "\n".join(line for look, (_, _, *lines) in drawn if look["kind"] == "text" for line in lines)
    figure = "\n".join(text.get_text() for text in draw_subnetwork(subnetwork).axes[0].texts)
    assert sorted(texts.split("\n")) == sorted(figure.split("\n"))
    arrows = [places for look, places in drawn if look.get("end") == "arrow" and look.get("color") == "ink"]
    assert len(arrows) == subnetwork.n_stitches > 0
    for look, places in drawn:
        numbers = places[:2] if look["kind"] == "text" else places[:4] if look["kind"] == "box" else places
        assert all(0 <= number <= max(document["width"], document["height"]) for number in numbers)


# ------------------------------------------------------------------------------------------------------------- the page


@given(st.text() | st.just(NASTY))
def test_names_are_data(name):
    text = html.escaped({name: name})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == {name: name}


def test_a_name_changes_nothing_in_a_page_but_its_data():
    pages = [html.page({"runs": [], "name": name}) for name in ("plain", NASTY)]
    assert data_of(pages[1])["name"] == NASTY
    assert pages[1].replace(html.escaped(NASTY), '"plain"') == pages[0]


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        html.page({"runs": [], "x": float("nan")})


def test_a_page_loads_nothing_and_runs_only_its_own_script():
    page = html.page({"runs": []})
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert rules.pop(name) == f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not rules
    assert "connect-src 'self'" in html.page({"runs": [], "live": {"runs": []}})
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script
    assert not re.search(r"(src|href)=\"?http|@import|url\(\"?http", page)


def test_every_file_of_the_page_is_in_it():
    static = {path.name for path in files("pymoo_stitch.report.page").joinpath("static").iterdir()}
    assert static == {"page.html", "page.css", *(f"{name}.js" for name in html._SCRIPTS)}


def test_four_thousand_evaluations_are_a_small_file(tmp_path):
    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 4_000))
    assert len(html.page(journals.document([run])).encode()) < 400_000  # which leaves a megabyte for what a report adds


# ----------------------------------------------------------------------------------------------------------- the server


@pytest.fixture
def serve():
    """A function that serves journals, and one that asks the server: method, path, and Host if it is another."""
    servers = []

    def start(*paths, **options):
        server = Server(Watched(paths), **options)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()

        def ask(path="/", method="GET", host=None):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
            try:
                connection.request(method, path, headers={"Host": host} if host else {})
                answer = connection.getresponse()
                return answer.status, answer.read().decode(), answer.headers
            finally:
                connection.close()

        return server, ask

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_rows_that_arrive_are_served(tmp_path, serve):
    journal = made_journals.begin(tmp_path / "run.sqlite", budget=100)
    _, ask = serve(tmp_path / "run.sqlite")
    first = data_of(ask()[1])
    assert first["runs"] == []
    assert first["live"]["runs"][0]["done"] == 0
    for number in range(0, 60, 20):
        journal.append(number, list(made_journals.rows(number, 20)))
        document = json.loads(ask(f"/document.json?tag={quote(first['tag'])}")[1])
        assert len(document["runs"][0]["evaluations"]["key"]) == document["live"]["runs"][0]["done"] == number + 20
        again = json.loads(ask(f"/document.json?tag={quote(document['tag'])}")[1])
        assert again.keys() == {"tag", "live"}  # nothing new
        first = document
    journal.close()
    status, page, headers = ask()
    assert status == 200
    assert data_of(page)["runs"] == first["runs"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_only_this_computer_is_answered(tmp_path, serve):
    server, ask = serve(made_journals.make(tmp_path / "run.sqlite", 20))
    assert server.server_address[0] == "127.0.0.1"
    port = server.server_port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert ask(host=host)[0] == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1:{port + 1}",
        "127.0.0.1",
        f"192.0.2.1:{port}",
        "[",
        ":x",
    ):
        status, text, _ = ask(host=host)
        assert status == 403, host
        assert "StitchProblem" not in text
        assert ask("/document.json", host=host)[0] == 403


def test_other_interfaces_only_on_request(tmp_path, serve):
    server, ask = serve(made_journals.make(tmp_path / "run.sqlite", 20), host="0.0.0.0")
    assert server.server_address[0] == "0.0.0.0"
    assert ask(host=f"192.0.2.1:{server.server_port}")[0] == 200
    assert ask(host=f"evil.example:{server.server_port}")[0] == 403


def test_a_server_only_reads(tmp_path, serve):
    path = made_journals.make(tmp_path / "run.sqlite", 20)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    _, ask = serve(path)
    assert ask()[0] == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        assert ask(method=method)[0] == 501
    for other in ("/run.sqlite", "/../run.sqlite", "/static/page.css", "//etc/passwd", "/%2e%2e/run.sqlite"):
        assert ask(other)[0] == 404
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_journal_that_goes_away_or_is_another_run(tmp_path, serve):
    path = made_journals.make(tmp_path / "run.sqlite", 20)
    _, ask = serve(path)
    assert len(json.loads(ask("/document.json")[1])["runs"][0]["evaluations"]["key"]) == 20
    path.unlink()
    document = json.loads(ask("/document.json")[1])
    assert document["live"]["problems"] == [f"there is no journal {path}."]
    assert len(document["runs"]) == 1  # what was read stays
    made_journals.make(path, 30, seed=2, budget=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_journals, "BEGUN", made_journals.BEGUN + 9)
        path.unlink()
        made_journals.make(path, 10, seed=2)
    document = json.loads(ask("/document.json")[1])
    assert len(document["runs"][0]["evaluations"]["key"]) == 10
    with pytest.raises(FileNotFoundError, match=r"there is no journal .*nothing.sqlite. Start the search first."):
        Watched([tmp_path / "nothing.sqlite"])


def test_watch_ends_with_ctrl_c_and_needs_no_torch(tmp_path):
    path = made_journals.make(tmp_path / "run.sqlite", 20)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pymoo_stitch.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    watch = subprocess.Popen(
        [sys.executable, "-c", code, "watch", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = re.search(r"Open http://127\.0\.0\.1:(\d+)/ in a browser", watch.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=20)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        watch.send_signal(signal.SIGINT)
        said, errors = watch.communicate(timeout=20)
    finally:
        watch.kill()
    assert (watch.returncode, said, errors) == (0, "", "")


def test_what_other_runs_had_evaluated_says_nothing_of_the_pace(tmp_path):
    run = Run.read(made_journals.make(tmp_path / "run.sqlite", 300))
    begun = datetime.fromisoformat(run.about["begun"]).timestamp()
    ends = [row.result["ended"] for row in run.rows]
    taken_over = [replace(row, result={**row.result, "ended": begun - 86_400}) for row in run.rows[:100]]
    paced = _pace(run.rows[100:], run.about, ends[-1])
    both = _pace([*run.rows[100:], *taken_over], run.about, ends[-1])
    assert both["done"] == 300
    assert both["rate"] == pytest.approx(paced["rate"], rel=0.1)  # that of a hundred rows instead of two hundred
    assert _pace(taken_over, run.about, ends[-1]) == {
        "done": 100,
        "budget": run.budget,
        "rate": None,
        "left": None,
        "idle": 0.0,
    }
