"""Figures say what they are given, are legible, and leave matplotlib as it was."""

from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation, Text

from pymoo_stitch import METRICS, Link, Supernet
from pymoo_stitch.report import (
    describe_subnetwork,
    draw_cascade,
    draw_subnetwork,
    plot_fronts,
    plot_hypervolume,
    plot_predictions,
    plot_reliability,
    plot_stitches,
)
from pymoo_stitch.report._looks import PALETTE, human
from pymoo_stitch.report.segments import segments, stitch_label
from pymoo_stitch.supernet import Cascade, Sharing
from pymoo_stitch.task import reliability

REFERENCES = {
    "resnet152.tv2_in1k": (11.5e9, 0.22),
    "efficientnet_b4.ra2_in1k": (4.4e9, 0.27),
    "ensemble": (15.9e9, 0.2),
}
LONG = "vit_large_patch16_siglip_gap_512.v2_webli"


def front(seed, n=20, low=2e9, high=14e9):
    """Points none of which dominates another."""
    rng = np.random.default_rng(seed)
    return np.column_stack([np.sort(rng.uniform(low, high, n)), np.sort(rng.uniform(0.2, 0.4, n))[::-1]])


def seed_curve(seed, n=50):
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(500, n, replace=False)), np.sort(rng.random(n))


def counts(seed, n=300):
    rng = np.random.default_rng(seed)
    nonzero = rng.poisson(10, n)
    return nonzero, rng.binomial(nonzero, 0.5)


def predictions(seed, n=500):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 10, generator=generator) * 2, torch.randint(10, (n,), generator=generator)


def texts(figure):
    """All that is drawn: matplotlib keeps labels of ticks beyond the limits, and does not draw them."""
    hidden = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            beyond = [tick for tick in ticks if not low <= tick.get_loc() <= high]
            hidden |= {label for tick in beyond for label in (tick.label1, tick.label2)}
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]


def assert_legible(figure):
    """All text inside the figure, drawn at 100 dots per inch, none smaller than 7 points."""
    figure.set_dpi(100)
    figure.draw_without_rendering()
    renderer = figure._get_renderer()
    for text in texts(figure):
        box = text.get_window_extent(renderer)
        name = text.get_text()
        assert box.x0 >= -0.5, name
        assert box.y0 >= -0.5, name
        assert box.x1 <= figure.bbox.x1 + 0.5, name
        assert box.y1 <= figure.bbox.y1 + 0.5, name
        assert text.get_fontsize() >= 7, name


def said(figure):
    return "\n".join(text.get_text() for text in texts(figure))


def overlapping(figure, labels):
    renderer = figure._get_renderer()
    boxes = [(label.get_text(), label.get_window_extent(renderer)) for label in labels]
    return [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]


def predicted(seed, n=200, scale=1.0):
    """Predicted errors, their spreads, and real errors that are so many spreads away."""
    rng = np.random.default_rng(seed)
    mean, spread = rng.random(n), 0.01 + 0.1 * rng.random(n)
    return mean, spread, mean + scale * spread * rng.standard_normal(n)


def test_the_calibration_of_a_model_is_drawn():
    figure = plot_predictions({"good": predicted(0, 2_000), "too sure": predicted(1, 2_000, scale=3.0)})
    good, sure, normal = (line.get_ydata() for line in figure.axes[1].lines)
    assert np.abs(np.array(good) - normal).max() < 0.05
    assert (np.array(sure)[5:20] < np.array(normal)[5:20] - 0.1).all()
    with pytest.raises(ValueError, match="runs is empty"):
        plot_predictions({})


FIGURES = {
    "fronts": lambda: plot_fronts({"validation": {"a": front(0)}, "test": {"a": front(1)}}, {"test": REFERENCES}),
    "one panel, no points": lambda: plot_fronts({"validation": {"a": np.empty((0, 2))}}, {}),
    "no series": lambda: plot_fronts({"validation": {}, "test": {}}, {"test": REFERENCES}),
    "many": lambda: plot_fronts({s: {f"{LONG}{i}": front(i) for i in range(9)} for s in "ab"}, {"a": REFERENCES}),
    "hypervolume": lambda: plot_hypervolume({LONG * i: [seed_curve(s) for s in range(i)] for i in range(1, 6)}),
    "stitches": lambda: plot_stitches({LONG + "!" * i: counts(i) for i in range(5)}),
    "no evaluations": lambda: plot_stitches({"a": ([], [])}),
    "reliability": lambda: plot_reliability({LONG * (i + 1): reliability(*predictions(i)) for i in range(3)}),
    "predictions": lambda: plot_predictions({LONG + "!" * i: predicted(i) for i in range(3)}),
    "few predictions": lambda: plot_predictions({"a": ([0.1], [0.01], [0.2])}),
    "no predictions": lambda: plot_reliability({"a": np.zeros((3, 15)), "$x$": reliability(*predictions(0))}),
}


def test_curves_have_bars_where_their_intervals_are_known():
    F = front(0, n=5)
    with_ends = np.column_stack([F, F[:, 1] - 0.01, F[:, 1] + 0.01])
    options = {"fronts": {"test": {"a": front(1)}}, "references": {"test": REFERENCES}}
    without, bars = (
        plot_fronts(**options, curves={"b": {"test": each}}).axes[0].collections for each in (F, with_ends)
    )
    assert (len(without), len(bars)) == (0, 1)
    found = np.array(bars[0].get_segments())
    np.testing.assert_allclose(1 - found[:, :, 1], with_ends[:, 2:])


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_legible_and_leave_matplotlib_alone(name):
    before = dict(matplotlib.rcParams)
    figure = FIGURES[name]()
    assert type(figure) is Figure
    assert dict(matplotlib.rcParams) == before
    assert_legible(figure)
    assert pyplot.get_fignums() == []


def test_what_a_user_has_set_changes_nothing():
    with matplotlib.rc_context({"font.size": 30, "text.color": "white", "axes.facecolor": "black"}):
        figure = FIGURES["fronts"]()
        assert matplotlib.rcParams["font.size"] == 30
    assert figure.axes[0].get_facecolor()[:3] == (1, 1, 1)
    assert {text.get_fontsize() for text in texts(figure)} <= {8, 9, 10}


def test_neighbours_in_the_palette_differ_in_grey():
    def grey(color):
        return float(np.dot(to_rgb(color), (0.299, 0.587, 0.114)))

    assert all(abs(grey(a) - grey(b)) > 0.12 for a, b in pairwise([*PALETTE, PALETTE[0]]))
    assert all(grey(color) < 0.7 for color in PALETTE)


# --------------------------------------------------------------------------------------------------------------- fronts


def series(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return np.column_stack(line.get_data())


def test_every_point_is_drawn_once_as_member_of_the_front_or_hollow():
    F = np.concatenate([front(0), front(0) + [1e6, 0.01]])
    figure = plot_fronts({"test": {"a": F}}, {"test": REFERENCES}, floor=0.5)
    (ax,) = figure.axes
    kept = series(ax, "a")
    assert np.allclose(kept, np.column_stack([F[:20, 0] / 1e9, 1 - F[:20, 1]]))
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in hollow] == [20]
    assert "dominated on this split" in said(figure)
    assert "multiply-adds (G)" in said(figure)
    assert "not shown" not in said(figure)


def test_the_floor_is_the_worst_network_rounded_down_and_what_is_below_is_counted():
    figure = plot_fronts({"test": {"a": [[1e6, 0.2], [2e6, 0.1], [0.5e6, 0.31]]}}, {"test": {"x": (1e6, 0.27)}})
    assert figure.axes[0].get_ylim()[0] == pytest.approx(0.7)
    assert "1 point below 0.7 not shown" in said(figure)
    assert "multiply-adds (M)" in said(figure)
    higher = plot_fronts({"test": {"a": [[1e6, 0.2], [2e6, 0.1]]}}, {"test": {"x": (1e6, 0.27)}}, floor=0.85)
    assert "1 point and 1 network below 0.85 not shown" in said(higher)
    exact = plot_fronts({"test": {"a": [[1e6, 0.2]]}}, {"test": {"x": (1e6, 0.3)}})
    assert exact.axes[0].get_ylim()[0] == pytest.approx(0.7)
    finer = plot_fronts({"test": {"a": [[1e6, 0.01]]}}, {"test": {"x": (1e6, 0.032)}})
    assert finer.axes[0].get_ylim()[0] == pytest.approx(0.95)


def test_hypervolumes_that_differ_little_can_be_told_apart():
    steep = {"a": [([1, 10, 500, 1_000], [0.0, 0.7, 0.74, 0.75])], "b": [([1, 9, 1_000], [0.1, 0.72, 0.73])]}
    low, high = plot_hypervolume(steep).axes[0].get_ylim()
    assert 0.65 < low < 0.7
    assert 0.75 < high < 0.8
    slow = {"a": [([1, 10, 500, 1_000], [0.0, 0.2, 0.5, 0.75])]}
    assert plot_hypervolume(slow).axes[0].get_ylim()[0] <= 0


def test_of_a_metric_of_which_less_is_better_the_error_is_drawn():
    figure = plot_fronts({"test": {"a": [[1e6, 2.5], [2e6, 1.1]]}}, {"test": {"x": (3e6, 1.7)}}, metric="cross_entropy")
    (ax,) = figure.axes
    assert ax.get_ylim()[1] == pytest.approx(1.7)
    assert np.allclose(series(ax, "a")[:, 1], [2.5, 1.1])
    assert "1 point above 1.7 not shown" in said(figure)


@pytest.mark.parametrize("number", [2, 4])
def test_names_of_networks_at_one_place_do_not_meet(number):
    references = {f"{LONG}{i}": (4e9, 0.24) for i in range(number)} | {"ensemble": (8e9, 0.2)}
    figure = plot_fronts({"v": {"a": front(0)}, "t": {"a": front(1)}}, {"v": references, "t": references})
    assert_legible(figure)
    for ax in figure.axes:
        names = [text for text in ax.texts if isinstance(text, Annotation)]
        assert len(names) == number + 1
        assert not overlapping(figure, names)
        frame = ax.get_window_extent()
        boxes = [name.get_window_extent() for name in names]
        assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 and frame.y0 <= b.y0 and b.y1 <= frame.y1 for b in boxes)


def test_panels_share_their_axes_and_the_legend_covers_none():
    figure = FIGURES["many"]()
    figure.draw_without_rendering()
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in figure.axes}) == 1
    (legend,) = figure.legends
    assert len(legend.get_texts()) >= 9
    assert not any(legend.get_window_extent().overlaps(ax.get_window_extent()) for ax in figure.axes)


def test_an_empty_front_is_told():
    figure = plot_fronts({"v": {"a": front(0), "b": []}, "t": {"a": []}}, {"t": REFERENCES})
    assert "no points: b" in said(figure)
    assert "no points" in [text.get_text() for text in figure.axes[1].texts]


# --------------------------------------------------------------------------------------------------------------- curves


def test_the_median_is_that_of_the_steps_where_all_seeds_have_a_value():
    curves = [(np.array(x), np.array(y)) for x, y in (([0, 4], [1, 5]), ([1, 3], [2, 3]), ([0, 2, 9], [0, 4, 6]))]
    figure = plot_hypervolume({"a": curves})
    (line,) = figure.axes[0].lines
    assert np.array_equal(np.column_stack(line.get_data()), [[1, 1], [2, 2], [3, 3]])
    assert line.get_drawstyle() == "steps-post"
    assert "a (3 seeds)" in said(figure)
    assert len(figure.axes[0].collections) == 1


def test_a_single_seed_has_no_band_and_seeds_apart_no_line():
    figure = plot_hypervolume({"a": [([0, 1], [0, 1])], "b": [([0], [0]), ([1], [1])]}, x_label="minutes")
    assert not figure.axes[0].collections
    assert len(figure.axes[0].lines) == 1
    assert "b (2 seeds), which share no x" in said(figure)
    assert "minutes" in said(figure)


def test_stitches_asked_for_and_in_use_are_two_lines_in_a_panel_for_each_run():
    figure = plot_stitches({f"run {i}": (np.full(100, 9), np.full(100, 4)) for i in range(4)})
    panels = figure.axes
    assert [ax.get_title(loc="left") for ax in panels] == [f"run {i}" for i in range(4)]
    for ax in panels:
        assert [set(line.get_ydata()) for line in ax.lines] == [{9}, {4}]
        assert len(ax.collections) == 2


def test_reliability_is_drawn_with_the_metrics_own_error():
    outputs, labels = predictions(0)
    sums = reliability(outputs[:200], labels[:200]) + reliability(outputs[200:], labels[200:])
    figure = plot_reliability({"a": sums})
    metric = METRICS["calibration_error"]
    assert f"ECE {metric.value(metric.sums(outputs, labels)):.3f}" in said(figure)
    _, line = figure.axes[0].lines
    assert len(line.get_xdata()) == (sums[0] >= 10).sum() < (sums[0] > 0).sum()  # what is nearly empty is left out
    assert ((line.get_xdata() >= 0.1) & (line.get_xdata() <= 1)).all()


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_fronts({}, {}), "fronts is empty"),
        (lambda: plot_fronts([], {}), "fronts is a dictionary"),
        (lambda: plot_fronts({"t": [1]}, {}), "the split 't' is a dictionary"),
        (lambda: plot_fronts({"t": {"a": [[1, 2, 3]]}}, {}), r"fronts\['t'\]\['a'\] must be of shape \[n, 2\]"),
        (lambda: plot_fronts({"t": {"a": [[1, np.nan]]}}, {}), "must be finite, but nan"),
        (lambda: plot_fronts({"t": {"a": "x"}}, {}), "must be numbers"),
        (lambda: plot_fronts({"t": {}}, {"v": {}}), "references are given for 'v'"),
        (lambda: plot_fronts({"t": {}}, {"t": {"x": 3}}), r"references\['t'\]\['x'\] must be two numbers"),
        (lambda: plot_fronts({"t": {}}, {}, metric="precision"), "no metric 'precision'; use one of accuracy"),
        (lambda: plot_fronts({"t": {}}, {}, floor=np.nan), "floor must be a value of the metric"),
        (lambda: plot_hypervolume({}), "curves is empty"),
        (lambda: plot_hypervolume({"a": []}), "holds no seed"),
        (lambda: plot_hypervolume({"a": [([0, 1], [1])]}), r"curves\['a'\]\[0\] must be two arrays of one length"),
        (lambda: plot_hypervolume({"a": [([], [])]}), "has no values"),
        (lambda: plot_hypervolume({"a": [([1, 0], [1, 2])]}), "x must never decrease, but 1 is followed by 0"),
        (lambda: plot_hypervolume({"a": [([0, 1], [1, np.inf])]}), "must be finite, but inf"),
        (lambda: plot_stitches({}), "runs is empty"),
        (lambda: plot_stitches({"a": ([1, 2], [2, 2])}), r"Give \(nonzero, active\)"),
        (lambda: plot_stitches({"a": [1, 2, 3]}), "must be a pair of arrays"),
        (lambda: plot_reliability({}), "bins is empty"),
        (lambda: plot_reliability({"a": np.zeros((2, 15))}), r"must be of shape \[3, bins\]"),
        (lambda: plot_reliability({"a": -np.ones((3, 15))}), "none negative"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


# ---------------------------------------------------------------------------------------------------------- subnetworks


def genotypes(supernet):
    return st.builds(
        lambda seed, p: np.random.default_rng(seed).random(supernet.n_var) < p,
        st.integers(0, 2**32),
        st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    )


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_segments_are_the_subnetwork(supernet, data):
    subnetwork = supernet.subnetwork(data.draw(genotypes(supernet)))
    parts, steps = segments(subnetwork), list(subnetwork.steps())
    nodes = [(part.network.name, part.network.nodes[i].name) for part in parts for i in part.nodes]
    assert sorted(nodes) == sorted((step.network.name, step.node.name) for step in steps if step.node)
    assert sum(part.cost for part in parts) == subnetwork.cost
    assert sorted(str(part.link) for part in parts if part.link) == sorted(map(str, subnetwork.links))
    for i, part in enumerate(parts):
        assert all(read < i for read in part.reads)
        if part.link:
            (source,) = part.reads
            assert parts[source].network.nodes[parts[source].nodes[-1]].name == part.link.source.name
            readers = [other for other in parts if i in other.reads]
            assert {reader.network.name for reader in readers} == {part.link.target.network}
        else:
            assert all(b == a + 1 for a, b in pairwise(part.nodes))


def test_a_network_alone_is_one_segment_and_the_ensemble_one_of_each(pool):
    for name, x in pool.references.items():
        parts = segments(pool.subnetwork(x))
        used = [network.name for network in pool.networks if name in (network.name, "ensemble")]
        assert sorted(part.network.name for part in parts) == sorted(used)
        assert all(len(part.nodes) == len(part.network.nodes) and part.reads_input for part in parts)


def test_a_segment_is_named_by_the_modules_it_holds(residual):
    supernet = Supernet([residual], [Link(residual.tap("stem.2"), residual.tap("norms.1"))])
    first, *_, last = segments(supernet.subnetwork([True]))
    assert (first.first, first.last) == ("stem", "stem")
    assert last.last == "head"


def test_the_table_tells_all_parts(supernet):
    for name, x in {**supernet.references, "ones": np.ones(supernet.n_var, dtype=bool)}.items():
        subnetwork = supernet.subnetwork(x)
        text = describe_subnetwork(subnetwork)
        assert f"{subnetwork.cost:,} multiply-adds with {subnetwork.n_stitches} stitch" in text
        assert all(f"stitch {stitch_label(link)}" in text and str(link.target) in text for link in subnetwork.links)
        assert (
            "output: the mean of" in text if len(subnetwork.outputs) > 1 else f"of {subnetwork.outputs[0].name}" in text
        )
        assert len(text.splitlines()) == 6 + len(segments(subnetwork)), name


def drawings(supernet):
    rng = np.random.default_rng(0)
    yield from supernet.references.values()
    for p in (0.1, 0.3, 0.7):
        yield rng.random(supernet.n_var) < p


def test_drawings_are_legible_and_their_labels_do_not_meet(supernet):
    before = dict(matplotlib.rcParams)
    for x in drawings(supernet):
        subnetwork = supernet.subnetwork(x)
        figure = draw_subnetwork(subnetwork)
        assert_legible(figure)
        assert not overlapping(figure, texts(figure))
        arrows = figure.findobj(FancyArrowPatch)
        assert len(arrows) == subnetwork.n_stitches + 1
        assert all(stitch_label(link) in said(figure) for link in subnetwork.links)
        assert all(network.name in said(figure) for network in supernet.networks)
        used = {part.network.name for part in segments(subnetwork) if part.network}
        assert said(figure).count("not in use") == len(supernet.networks) - len(used)
    assert dict(matplotlib.rcParams) == before


def test_many_stitches_back_and_forth_stay_legible(deep, residual):
    names = ["stem.0", "stem.1", "blocks.0", "norms.0", "blocks.1", "norms.1"]
    links = [
        Link(a.tap(name), b.tap(after))
        for number, (name, after) in enumerate(pairwise(names))
        for a, b in [(deep, residual) if number % 2 else (residual, deep)]
    ]
    supernet = Supernet([residual, deep], [*links, Link(residual.tap("silu"), deep.tap("silu"))])
    figure = draw_subnetwork(supernet.subnetwork(np.ones(supernet.n_var, dtype=bool)))
    assert_legible(figure)
    assert not overlapping(figure, texts(figure))


def test_links_between_branches_may_turn_the_order_of_a_network(gated, residual):
    links = [Link(gated.tap("right"), residual.tap("stem.0")), Link(residual.tap("stem.2"), gated.tap("left"))]
    subnetwork = Supernet([gated, residual], links).subnetwork([1, 1, 0, 0])
    parts = segments(subnetwork)
    assert [part.first for part in parts if part.network] == ["right", "stem.1", "relu", "cat"]
    assert parts[-1].reads == (0, 4)
    assert_legible(draw_subnetwork(subnetwork))


def test_cascades_are_drawn_with_what_stages_add_and_where_they_stop(supernet):
    genotypes = list(drawings(supernet))
    for stages, thresholds, fractions in (
        (genotypes[:2], [0.9], None),
        (genotypes[-3:], [0.25, 0.75], [1, 0.5, 0.125]),
    ):
        stages = [supernet.subnetwork(x) for x in stages]
        cascade = Cascade(stages, thresholds, fractions=fractions)
        figure = draw_cascade(cascade)
        assert_legible(figure)
        assert not overlapping(figure, texts(figure))
        assert len(figure.findobj(FancyArrowPatch)) == sum(stage.n_stitches + 1 for stage in stages)
        for number, cost in enumerate(np.diff(cascade.costs, prepend=0), 1):
            assert f"Stage {number}: {human(cost)} multiply-adds" in said(figure)
        assert all(f"is at least {threshold}" in said(figure) for threshold in thresholds)
        assert ("50 % of images" in said(figure)) == (fractions is not None)


def test_what_a_stage_reuses_is_a_part_of_its_own(supernet):
    """Each step is in one part, and known are those that an earlier stage has."""
    first, second = (supernet.subnetwork(x) for x in list(drawings(supernet))[-2:])
    sharing = Sharing([first, second])
    known = {s.id for s, i in zip(second.steps(), sharing.of[1], strict=True) if i in set(sharing.of[0])}
    parts = segments(second, known)
    assert sum(part.cost for part in parts) == second.cost
    new = sum(part.cost for part in parts if not part.is_known)
    assert new == np.diff(Cascade([first, second], [0.5]).costs)[0]


def test_numbers_have_three_digits():
    assert [human(n) for n in (0, 12, 4096, 123456, 4.089e9, 15.9e9)] == [
        "0",
        "12",
        "4.10 k",
        "123 k",
        "4.09 G",
        "15.9 G",
    ]
