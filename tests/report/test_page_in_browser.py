"""The page of a report in a real browser: what a person sees, points at, clicks, types and downloads."""

import csv
import json
import re
import shutil
import threading

import made_journals
import numpy as np
import pytest

from pymoo_stitch import Report, Run, StitchProblem, Task, compare
from pymoo_stitch.algorithms import LKGOMEA, nsga2
from pymoo_stitch.report.page import html, journals
from pymoo_stitch.report.page.members import document
from pymoo_stitch.report.page.server import Server, Watched

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NASTY = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="there is no playwright here: pip install playwright"
    )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """A function that opens an address in a window of its own. Whatever the page complains of, or loads, fails the
    test."""
    complaints, contexts = [], []

    def open_page(address, width=1280, scheme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if is_foreign(request.url, address) else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def is_foreign(url, address):
    return not url.startswith((address.rsplit("/", 1)[0] + "/", "blob:", "data:"))


@pytest.fixture(scope="module")
def report(digits, tmp_path_factory):
    """Of four short searches of the default problem, with few images, and classes with names of their own."""
    sizes = {"validation": 400, "selection": 1_000, "test": 800}
    images = {name: tuple(part[:n] for part in digits.task[name].source) for name, n in sizes.items()}
    classes = [NASTY, *"123456789"]
    problem = StitchProblem(digits.space, Task(**images, classes=classes), batch_size=400)
    problem.origin = digits.origin
    algorithms = {"LK-GOMEA": lambda: LKGOMEA(pop_size=20), "NSGA-II": lambda: nsga2(pop_size=20)}
    runs = compare(problem, algorithms, ("n_evals", 80), seeds=[1, 2], folder=tmp_path_factory.mktemp("runs"))
    return Report(runs, problem)


@pytest.fixture(scope="module")
def address(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.page(document(report, path.parent)), encoding="utf-8")
    return path.as_uri()


def place_of(page, network, split):
    """Where a network is in the chart, by the numbers at its axes."""
    scale = page.evaluate("""() => {
        const place = (t) => [+t.getAttribute('x'), +t.getAttribute('y'), t.getAttribute('text-anchor')];
        const ticks = [...document.querySelectorAll('#front .tick')].map((t) => [t.textContent, ...place(t)]);
        const x = ticks.filter((t) => t[3] === 'middle').map((t) => [+t[0], t[1]]);
        return {x, y: ticks.filter((t) => t[3] === 'end').map((t) => [+t[0], t[2] - 4])};
    }""")
    largest = max(
        reference["on"][split]["cost"] for reference in data(page)["members"] if reference["kind"] == "reference"
    )
    at = network["on"][split]
    values = {"x": 100 * at["cost"] / largest, "y": 1 - at["error"]}
    lines = {axis: np.polyfit(*np.transpose(scale[axis]), 1) for axis in "xy"}
    return {axis: float(np.polyval(lines[axis], values[axis])) for axis in "xy"}


def data(page):
    return json.loads(page.locator("#document").text_content())


def rows(page):
    return page.locator("#table tbody tr")


def member(page, kind, number=0):
    return [one for one in data(page)["members"] if one["kind"] == kind][number]


def unpin_all(page):
    page.keyboard.press("Escape")


# ------------------------------------------------------------------------------------------------------------ the front


@pytest.mark.parametrize("split", ["validation", "selection", "test"])
def test_hovering_tells_what_a_point_is(show, address, split):
    page = show(address)
    page.locator("#splits label", has_text=split).click()
    reference = member(page, "reference", 1)
    page.locator("#front").hover(position=place_of(page, reference, split))
    tip = page.locator(".tip").inner_text()
    value, low, high = reference["on"][split]["metrics"]["accuracy"]
    assert reference["name"] in tip
    assert f"accuracy on {split}: {value:.4f} ({low:.4f}–{high:.4f})" in tip
    page.locator("h1").hover()
    assert page.locator(".tip").is_hidden()


def test_what_stopped_early_and_was_evaluated_again_is_no_estimate(show, report, tmp_path):
    made = document(report, tmp_path)
    network = [one for one in made["members"] if one["kind"] == "network"][-1]
    for run in made["runs"]:
        columns = run["evaluations"]
        columns["excluded"] = ["bounded" if network["key"].startswith(key) else None for key in columns["key"]]
    assert any(any(run["evaluations"]["excluded"]) for run in made["runs"])
    path = tmp_path / "report.html"
    path.write_text(html.page(made), encoding="utf-8")
    page = show(path.as_uri())
    for split in ("validation", "selection"):
        page.locator("#splits label", has_text=split).click()
        page.locator("#front").hover(position=place_of(page, network, split))
        tip = page.locator(".tip").inner_text()
        assert network["name"] in tip
        assert f"accuracy on {split}: {network['on'][split]['metrics']['accuracy'][0]:.4f}" in tip


def test_a_cascade_is_compared_in_words(show, address):
    page = show(address)
    cascade = member(page, "cascade", 2)
    page.locator("#front").hover(position=place_of(page, cascade, "selection"))
    tip = page.locator(".tip").inner_text()
    assert cascade["name"] in tip
    for name, against in cascade["on"]["selection"]["against"].items():
        assert re.search(rf"{against['verdict']}[^;]*{name}", tip)


def test_every_evaluated_network_is_a_point(show, address, report):
    page = show(address)
    page.locator("#splits label", has_text="validation").click()
    page.get_by_role("button", name="Show everything").click()
    keys = {row.key for run in report.runs for row in run.rows}
    keys |= {point.key for point in [*report.references, *report.cascades, *report.front]}
    page.select_option("select[name=what]", "all")
    assert page.locator("#count").inner_text() == f"{len(keys)} of {len(keys)} networks"
    assert page.locator("#front-note").inner_text().startswith(f"The search saw these images. {len(keys)} networks.")
    drawn = page.evaluate("""() => {
        const canvas = document.querySelector('#front canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return pixels.filter((v, i) => i % 4 === 3 && v).length;
    }""")
    assert drawn > len(keys)  # pixels


def test_clicking_pins_and_two_are_compared(show, address, report):
    page = show(address)
    unpin_all(page)
    first, second = member(page, "reference", 0), member(page, "reference", 2)
    for one in (first, second):
        page.locator("#front").click(position=place_of(page, one, "selection"))
    cards = page.locator(".card")
    assert cards.count() == 2
    boxes = [cards.nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]  # side by side
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    for i, one in enumerate((first, second)):
        text = cards.nth(i).inner_text()
        for split in report.splits:
            for value, low, high in one["on"][split]["metrics"].values():
                assert f"{value:.4f}" in text
                assert f"{low:.4f}–{high:.4f}" in text
    less = first["on"]["test"]["metrics"]["accuracy"][0] - second["on"]["test"]["metrics"]["accuracy"][0]
    assert f"{less:+.4f} on test".replace("-", "−") in page.locator("#pins-note").inner_text()
    page.locator("#front").click(position=place_of(page, first, "selection"))  # again
    assert cards.count() == 1
    page.get_by_role("button", name="Unpin").click()
    assert cards.count() == 0


def test_a_pinned_network_is_drawn_and_can_be_exported(show, address, report):
    page = show(address, permissions=["clipboard-read", "clipboard-write"])
    unpin_all(page)
    point = next(point for point in report.front if point.stitches)
    page.locator(f"tr[data-id='{point.key[:12]}']").click()
    card = page.locator(".card")
    drawing = card.locator(".drawing svg")
    for link in point.network.links:
        assert f"{link.source.channels}→{link.target.channels}" in drawing.text_content()
    assert drawing.locator("path[marker-end]").count() >= point.stitches
    card.get_by_text("Parts", exact=True).click()
    assert card.locator("details table tbody tr").count() > point.stitches
    card.get_by_text("Reliability on test").click()
    card.locator(".chart circle").nth(1).wait_for()  # which is drawn when it is opened
    command = card.locator("code").first.inner_text()
    assert command.startswith("pymoo-stitch export ")
    assert f"--key {point.key} --output {point.name}.pt2" in command
    card.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_what_is_recommended_is_pinned_first(show, address, report):
    page = show(address)
    cards = page.locator(".card")
    assert cards.count() == (report.recommended is not None)
    if report.recommended is not None:
        assert report.recommended.name in cards.inner_text()
        assert "recommended" in cards.inner_text()
    assert page.locator("#advice").inner_text().startswith("Recommended: ")


# ------------------------------------------------------------------------------------------------------------ the table


def test_filters_and_sorting(show, address, report):
    page = show(address)
    page.select_option("select[name=what]", "all")
    page.select_option("select[name=algorithm]", "NSGA-II")
    page.select_option("select[name=seed]", "2")
    (run,) = [run for run in report.runs if (run.algorithm, run.seed) == ("NSGA-II", 2)]
    assert page.locator("#count").inner_text().startswith(f"{len({row.key for row in run.rows})} of ")
    page.get_by_label("cost, % of ensemble, at most").fill("50")
    page.get_by_role("button", name="stitches").click()
    texts = [row.split("\t") for row in rows(page).all_inner_texts()]
    assert texts
    assert all(float(row[2].split()[0]) <= 50 for row in texts)
    counts = [int(row[7]) for row in texts]
    assert counts == sorted(counts)
    page.get_by_role("button", name="stitches ↑").click()
    counts = [int(row.split("\t")[7]) for row in rows(page).all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    page.get_by_label("stitches, at least").fill("2")
    assert all(int(row.split("\t")[7]) >= 2 for row in rows(page).all_inner_texts())
    page.get_by_role("button", name="Reset").click()
    page.get_by_label("name or key").fill("ensem")
    assert [row.split("\t")[0] for row in rows(page).all_inner_texts()] == ["ensemble"]


def test_dragging_in_the_chart_filters_the_table(show, address):
    page = show(address)
    first = member(page, "reference", 2)
    place, box = place_of(page, first, "selection"), page.locator("#front").bounding_box()
    page.mouse.move(box["x"] + place["x"] - 15, box["y"] + place["y"] - 15)
    page.mouse.down()
    page.mouse.move(box["x"] + place["x"] + 15, box["y"] + place["y"] + 15, steps=4)
    page.mouse.up()
    assert first["name"] in "".join(rows(page).all_inner_texts())
    assert "inverted" not in "".join(rows(page).all_inner_texts())
    low, high = (
        float(page.get_by_label(f"accuracy, selection, {end}").input_value()) for end in ("at least", "at most")
    )
    assert low < 1 - first["on"]["selection"]["error"] < high
    page.get_by_role("button", name="Zoom to the filter").click()
    again = place_of(page, first, "selection")
    assert again["x"] != pytest.approx(place["x"], abs=20) or again["y"] != pytest.approx(place["y"], abs=20)
    page.get_by_role("button", name="Zoom out").click()
    assert place_of(page, first, "selection") == pytest.approx(place, abs=2)


@pytest.mark.parametrize("kind", ["CSV", "JSON"])
def test_the_selection_is_downloaded(show, address, report, kind, tmp_path):
    page = show(address)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {kind}").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    with open(path, newline="", encoding="utf-8") as file:
        records = json.load(file) if kind == "JSON" else list(csv.DictReader(file))
    points = {point.key: point for point in [*report.references, *report.cascades, *report.front]}
    assert {record["key"] for record in records} >= points.keys()
    for record in records:
        if record["key"] in points:
            point = points[record["key"]]
            assert float(record["test_accuracy"]) == pytest.approx(point.metrics["test"]["accuracy"], abs=1e-6)
            assert float(record["test_accuracy_low"]) == pytest.approx(point.interval("test", "accuracy")[0], abs=1e-6)
            assert int(record["stitches"]) == point.stitches


def test_everything_is_reached_by_keyboard(show, address):
    page = show(address)
    unpin_all(page)
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        kind = page.evaluate(
            "document.activeElement.closest('tbody tr') ? 'row' : document.activeElement.name || "
            "document.activeElement.textContent"
        )
        seen.add(kind)
        if kind == "row":
            break
    assert {"split", "what", "algorithm", "seed", "cost-min", "metric-max", "Reset", "row"} <= seen
    names = [text.split("\t")[0] for text in rows(page).all_inner_texts()]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert names[1] in page.locator(".card").inner_text()
    page.keyboard.press("ArrowDown")  # the focus is where it was
    page.keyboard.press("Enter")
    assert page.locator(".card").count() == 2
    page.keyboard.press("Escape")
    assert page.locator(".card").count() == 0
    page.get_by_role("button", name="stitches").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "stitches ↓"


# ------------------------------------------------------------------------------------------------------------- the runs


def test_curves_of_all_runs(show, address, report):
    page = show(address)
    for name in ("hypervolume", "predictions", "stitches", "utilisation"):
        assert page.locator(f"#{name} svg").is_visible()
    assert page.locator("#hypervolume path[fill-opacity]").count() == 2  # quartiles of each algorithm
    before = page.locator("#hypervolume").inner_html()
    page.locator("#curves label", has_text="time").click()
    assert page.locator("#hypervolume").inner_html() != before
    table = page.locator("#runs").inner_text()
    for label, values in report.comparison.hypervolumes.items():
        for value in values.values():
            assert f"{value:.4f}" in table, label


# ---------------------------------------------------------------------------------------------------------------- looks


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_wide_and_narrow(show, address, width, scheme):
    page = show(address, width=width, scheme=scheme)
    background, ink = page.evaluate(
        "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; })()"
    )
    lightness = [sum(map(int, re.findall(r"\d+", text)[:3])) / 3 for text in (background, ink)]
    assert (lightness[0] > lightness[1]) == (scheme == "light")
    assert abs(lightness[0] - lightness[1]) > 150
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    for part in ("#front", "#hypervolume"):
        assert page.locator(f"{part} svg").bounding_box()["width"] <= width


def test_it_prints_in_grey_and_without_controls(show, address):
    page = show(address, scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#filters").is_hidden()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    colors = [page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--c{i}')") for i in range(7)]
    for text in colors:
        red, green, blue = re.findall(r"[0-9a-f]{2}", text)
        assert red == green == blue
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--c0')") not in colors


def test_names_do_nothing(show, tmp_path, address):
    scale = made_journals.SCALE | {"references": [[NASTY, 700_000.0, 0.03]]}
    path = made_journals.make(tmp_path / "run.sqlite", 50, scale=scale, algorithm=NASTY)
    (tmp_path / "page.html").write_text(html.page(journals.document([Run.read(path)])), encoding="utf-8")
    page = show((tmp_path / "page.html").as_uri())
    rows(page).filter(has_text=NASTY).first.click()
    assert NASTY in page.locator(".card").inner_text()
    assert page.title() != "run"
    assert page.locator("img").count() == 0
    page = show(address)  # whose classes have such names
    assert NASTY in page.locator("#about").inner_text()
    assert page.title() != "run"


# ---------------------------------------------------------------------------------------------------------------- sizes


def test_twenty_thousand_points_can_be_used(show, tmp_path):
    def more(number):
        return {"images": 100, "bound": 0.1} if number % 3 == 2 else {"images": 1_200}

    paths = [made_journals.make(tmp_path / f"{seed}.sqlite", 5_000, seed, more) for seed in range(1, 5)]
    (tmp_path / "page.html").write_text(
        html.page(journals.document([Run.read(path) for path in paths])), encoding="utf-8"
    )
    page = show((tmp_path / "page.html").as_uri())
    assert page.locator("h1").inner_text().startswith("digits: 20,000 evaluations")
    page.select_option("select[name=what]", "all")
    assert page.locator("#count").inner_text() == "20,003 of 20,003 networks"
    page.get_by_role("button", name="accuracy, validation").click()
    values = [float(text.split("\t")[4].split()[-1]) for text in rows(page).all_inner_texts()]
    assert values == sorted(values, reverse=True)
    page.locator("#front").hover(position=place_of(page, member(page, "reference", 2), "validation"))
    assert "both" in page.locator(".tip").inner_text()
    page.locator("#curves label", has_text="images").click()
    assert page.locator("#hypervolume svg").get_attribute("aria-label") == "Hypervolume over images"
    page.get_by_label("name or key").fill("s002")
    assert page.locator("#count").inner_text() == "5,000 of 20,003 networks"


def test_watching_shows_rows_as_they_arrive(show, tmp_path):
    journal = made_journals.begin(tmp_path / "run.sqlite", budget=120)
    server = Server(Watched([tmp_path / "run.sqlite"]))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    try:
        page = show(server.url)
        status = page.locator("#status")
        status.filter(has_text="run.sqlite: 0 of 120 evaluations").wait_for()
        assert page.locator("main").is_hidden()
        journal.append(0, list(made_journals.rows(0, 80)))
        status.filter(has_text="80 of 120 evaluations").wait_for()
        assert page.locator("h1").inner_text() == "digits: 80 evaluations by async-NSGA-II"
        page.select_option("select[name=what]", "all")
        rows(page).first.click()
        pinned = page.locator(".card h3").inner_text()
        page.get_by_label("cost, % of both, at most").press_sequentially("100000.")  # somebody is typing
        journal.append(80, list(made_journals.rows(80, 40)))
        status.filter(has_text="120 of 120 evaluations, complete").wait_for()
        page.keyboard.type("5")
        assert page.get_by_label("cost, % of both, at most").input_value() == "100000.5"
        assert page.locator("h1").inner_text() == "digits: 120 evaluations by async-NSGA-II"
        assert page.locator(".card h3").inner_text() == pinned  # what was chosen stays
        assert page.locator("#count").inner_text() == "123 of 123 networks"
        assert page.locator("#runs tbody").inner_text().split("\t")[3] == "120 of 120"
    finally:
        server.shutdown()
        server.server_close()
        journal.close()
