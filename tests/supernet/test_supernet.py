"""Supernets and subnetworks: the fast selection equals the slow interpretation, for any genotype."""

import pickle

import numpy as np
import pytest
import torch
from conftest import IMAGE, Residual, imported, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import interpret
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pymoo_stitch import KINDS, Kind, Layout, Link, Network, Supernet

quick = settings(deadline=None, max_examples=25)


def genotypes(n_var):
    """Sparse, dense and arbitrary ones."""
    arbitrary = st.lists(st.booleans(), min_size=n_var, max_size=n_var)
    few = st.lists(st.integers(0, n_var - 1), max_size=6).map(lambda ones: [i in ones for i in range(n_var)])
    return st.one_of(few, arbitrary).map(lambda values: np.array(values, dtype=bool))


@given(data=st.data())
@quick
def test_a_module_gives_what_the_slow_interpreter_gives(supernet, images, data):
    x = data.draw(genotypes(supernet.n_var))
    subnetwork = supernet.subnetwork(x)
    expected, looked_at = interpret(supernet, x, images)
    with torch.no_grad():
        assert torch.equal(subnetwork.module()(images), expected)
    assert set(np.flatnonzero(subnetwork.active)) == looked_at


def test_selection_is_the_same_however_much_of_it_is_kept(supernet, monkeypatch):
    x = np.random.default_rng(0).random((100, supernet.n_var)) < np.linspace(0, 0.5, 100)[:, None]
    expected = [supernet.subnetwork(row) for row in x]
    monkeypatch.setattr("pymoo_stitch.supernet.selection._MOST", 3)
    few = pickle.loads(pickle.dumps(supernet._selector))
    assert few._points == {}
    for row, subnetwork in zip(x, expected, strict=True):
        selection = few(row)
        assert (selection.active == subnetwork.active).all()
        assert [supernet.links[i] for i in selection.links] == subnetwork.links
        assert selection.nodes == subnetwork._selection.nodes
    assert len(few._points) < len(supernet._selector._points)


@given(data=st.data())
@quick
def test_inactive_variables_change_nothing_and_active_ones_the_key(supernet, images, data):
    x = data.draw(genotypes(supernet.n_var))
    subnetwork = supernet.subnetwork(x)
    variable = data.draw(st.integers(0, supernet.n_var - 1))
    flipped = x.copy()
    flipped[variable] ^= True
    other = supernet.subnetwork(flipped)
    if subnetwork.active[variable]:
        assert other.key != subnetwork.key
    else:
        assert other.key == subnetwork.key
        assert other.cost == subnetwork.cost
        assert (other.active == subnetwork.active).all()
        with torch.no_grad():
            assert torch.equal(other.module()(images), subnetwork.module()(images))


@given(data=st.data())
@quick
def test_keys_are_equal_exactly_where_the_active_structure_is(supernet, data):
    first, second = (data.draw(genotypes(supernet.n_var)) for _ in range(2))
    drifted = np.where(supernet.subnetwork(first).active, first, second)  # the same where it matters
    for x, y in ((first, second), (first, drifted)):
        a, b = supernet.subnetwork(x), supernet.subnetwork(y)
        same = (a.links, a.outputs) == (b.links, b.outputs)
        assert (a.key == b.key) == same
    assert supernet.subnetwork(drifted).key == supernet.subnetwork(first).key


@given(data=st.data())
@quick
def test_cost_is_what_torch_counts_on_the_module(supernet, data):
    subnetwork = supernet.subnetwork(data.draw(genotypes(supernet.n_var)))
    module = subnetwork.module()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.rand(1, *IMAGE))
    assert subnetwork.cost == counter.get_total_flops() // 2


def test_references_are_the_networks_and_their_ensemble(supernet, images):
    references = supernet.references
    outputs = []
    for network in supernet.networks:
        subnetwork = supernet.subnetwork(references[network.name])
        outputs.append(network.module()(images))
        assert subnetwork.cost == network.cost
        assert subnetwork.n_stitches == 0
        assert torch.equal(subnetwork.module()(images), outputs[-1])
    ensemble = supernet.subnetwork(references["ensemble"])
    assert ensemble.cost == sum(network.cost for network in supernet.networks)
    torch.testing.assert_close(ensemble.module()(images), torch.stack(outputs).mean(0))
    assert not references[supernet.networks[0].name].any()
    assert len(references) == len(supernet.networks) + 1


def test_the_all_zero_genotype_is_the_first_module_to_the_bit(images):
    modules = [seeded(Residual).eval(), seeded(lambda: Residual(4, 3), 1).eval()]
    supernet = Supernet.build(modules, images)
    assert [network.name for network in supernet.networks] == ["residual_1_6k", "residual_925"]
    with torch.no_grad():
        assert torch.equal(
            supernet.subnetwork(np.zeros(supernet.n_var, dtype=bool)).module()(images), modules[0](images)
        )


def test_the_numbers_of_a_pair(pair):
    assert len(pair.links) == 2 * pair.n_matches
    assert pair.n_switches == 2 * pair.n_matches + 1
    assert pair.n_var == 2 * pair.n_matches + 2
    assert pair.bound == pair.n_matches


def test_variables_of_a_match_are_neighbours_and_matches_in_topological_order(pair):
    for forth, back in zip(pair.links[::2], pair.links[1::2], strict=True):
        assert (forth.source, forth.target) == (back.target, back.source)
    for network in pair.networks:
        positions = [network.taps.index(link.target) for link in pair.links if link.target.network == network.name]
        assert positions == sorted(positions)


def test_links_are_put_in_order_however_they_are_given(pair):
    shuffled = [pair.links[i] for i in np.random.default_rng(0).permutation(len(pair.links))]
    again = Supernet(pair.networks, shuffled)
    ends = [{str(link.source), str(link.target)} for link in again.links]
    assert all(a == b for a, b in zip(ends[::2], ends[1::2], strict=True))


def test_a_module_holds_only_what_it_uses(pair):
    subnetwork = pair.subnetwork(pair.references["gated"])
    gated = pair.networks[1]
    assert set(subnetwork.module().state_dict()) == {f"gated.{name}" for name in gated.weights}
    x = pair.references["gated"]
    x[:2] = True
    used = pair.subnetwork(x)
    names = {name.rsplit(".", 1)[0] for name in used.module().state_dict() if name.startswith("stitches.")}
    assert names == {f"stitches.{link.stitch}" for link in used.links}


def test_a_module_is_a_copy(pair, images):
    x = np.ones(pair.n_var, dtype=bool)
    before = pair.subnetwork(x).module()(images)
    module = pair.subnetwork(x).module()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.zero_()
    assert torch.equal(pair.subnetwork(x).module()(images), before)


def test_a_module_goes_to_the_device_asked_for(supernet):
    module = supernet.subnetwork(np.ones(supernet.n_var, dtype=bool)).module("meta")
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}
    assert module(torch.rand(2, *IMAGE, device="meta")).shape == (2, 5)


@pytest.mark.parametrize("chosen", ["some", *(pytest.param(c, marks=pytest.mark.slow) for c in ("none", "all"))])
def test_a_module_can_be_exported_again(supernet, images, chosen):
    x = {"none": np.zeros, "all": np.ones}.get(chosen, lambda n, dtype: np.arange(n) % 3 == 0)(
        supernet.n_var, dtype=bool
    )
    module = supernet.subnetwork(x).module()
    program = torch.export.export(module, (images,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    more = torch.rand(5, *IMAGE)
    torch.testing.assert_close(program.module()(more), module(more))
    again = Network.from_module(module, images, name="again")
    assert again.cost == supernet.subnetwork(x).cost


def test_a_module_can_be_trained(supernet, images):
    module = supernet.subnetwork(np.ones(supernet.n_var, dtype=bool)).module()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    module(images).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_links_may_share_a_stitch(by_hand):
    sharing = [link for link in by_hand.links if link.stitch == "shared"]
    assert len(sharing) == 2
    assert len(by_hand.stitches) == len(by_hand.links) - 1


def test_unfitted_stitches_are_the_same_every_time_and_leave_the_generator_alone(pair):
    state = torch.random.get_rng_state()
    again = Supernet(pair.networks, pair.links)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in pair.stitches.state_dict().items():
        assert torch.equal(tensor, again.stitches.state_dict()[name])


def test_a_users_kind_is_built_costed_and_run(residual, gated, images):
    def build(layout, channels_in, channels_out):
        return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.Tanh())

    KINDS["conv+tanh"] = Kind(build, frozenset({Layout.IMAGE}))
    try:
        supernet = Supernet.build([residual, gated], kind="conv+tanh")
        x = np.ones(supernet.n_var, dtype=bool)
        assert torch.equal(supernet.subnetwork(x).module()(images), interpret(supernet, x, images)[0])
        plain = Supernet(supernet.networks, [Link(link.source, link.target) for link in supernet.links])
        assert supernet.subnetwork(x).cost > plain.subnetwork(x).cost
    finally:
        del KINDS["conv+tanh"]


def test_the_summary_tells_what_there_is(pool):
    text = str(pool)
    assert text == pool.summary()
    for network in pool.networks:
        assert network.name in text
        assert f"{network.cost:,}" in text
    assert f"{pool.n_matches} of at most {pool.bound}" in text
    assert f"{sum(p.numel() for p in pool.stitches.parameters()):,}" in text


def test_a_key_belongs_to_one_supernet(pair, residual, gated):
    other = Supernet(pair.networks, pair.links[:-2])
    assert (
        other.subnetwork(np.zeros(other.n_var, dtype=bool)).key != pair.subnetwork(np.zeros(pair.n_var, dtype=bool)).key
    )


# --------------------------------------------------------------------------------------------------------------- errors


def test_a_cycle_is_named(residual, gated):
    links = [Link(residual.tap("norms.1"), gated.tap("right")), Link(gated.tap("mul"), residual.tap("stem.0"))]
    with pytest.raises(ValueError, match=r"the links .*gated:mul → residual:stem.0.* close a cycle"):
        Supernet([residual, gated], links)
    with pytest.raises(ValueError, match=r"the links residual:relu → residual:stem.0 close a cycle"):
        Supernet([residual, gated], [Link(residual.tap("relu"), residual.tap("stem.0"))])


class Small(nn.Module):
    def __init__(self, outputs=5, size=3):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 2, size), nn.Linear(2, outputs)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))


def test_networks_that_cannot_be_joined_are_errors(residual, gated, images):
    with pytest.raises(ValueError, match=r"no network is given"):
        Supernet.build([])
    with pytest.raises(ValueError, match=r"two or more networks, but 1 is given"):
        Supernet.build([residual])
    with pytest.raises(ValueError, match=r"no network is given"):
        Supernet([], [])
    with pytest.raises(ValueError, match=r"none is given. Pass one, such as torch.rand"):
        Supernet.build([residual, Small()])
    with pytest.raises(ValueError, match=r"2 networks are named 'residual'. Give each its own name"):
        Supernet([residual, residual], [])
    with pytest.raises(
        ValueError, match=r"differ in output shape: residual \(5,\), small \(7,\). Only networks for the same task"
    ):
        Supernet.build([residual, Small(outputs=7)], images)
    with pytest.raises(ValueError, match=r"differ in input shape: residual \(3, 8, 8\), small \(3, 9, 9\)"):
        Supernet.build([residual, Small()], torch.rand(1, 3, 9, 9))
    with pytest.raises(TypeError, match=r"made of Network objects, not of Small"):
        Supernet([residual, Small()], [])


def test_networks_without_compatible_taps_are_an_error():
    modules = [nn.Sequential(nn.Conv2d(3, 4, size), nn.ConvTranspose2d(4, 2, size)) for size in (3, 5)]
    message = r"no tap of sequential_186 or sequential_506 can be matched with one of another by a 'linear' stitch"
    with pytest.raises(ValueError, match=message):
        Supernet.build(modules, torch.rand(1, *IMAGE))


def test_links_that_do_not_fit_are_errors(residual, gated, deep):
    tap = residual.tap("stem.0")
    with pytest.raises(ValueError, match=r"cannot lead from vector \(12,\) to image \(6, 8, 8\)"):
        Supernet([residual, gated], [Link(gated.tap("view"), tap)])
    with pytest.raises(
        ValueError, match=r"uses a tap deep:stem.0 that is not among the taps of the networks residual, gated"
    ):
        Supernet([residual, gated], [Link(deep.tap("stem.0"), tap)])
    with pytest.raises(ValueError, match=r"asks for a stitch of kind 'cubic'; choose from .*linear"):
        Supernet([residual, gated], [Link(tap, gated.tap("mul"), kind="cubic")])
    with pytest.raises(ValueError, match=r"is given more than once"):
        Supernet([residual, gated], [Link(tap, gated.tap("mul"))] * 2)
    with pytest.raises(ValueError, match=r"cannot share the stitch 's': their kinds, layouts or channels differ"):
        Supernet([residual, gated], [Link(tap, gated.tap("mul"), stitch="s"), Link(tap, gated.tap("left"), stitch="s")])
    for name in ("a.b", "keys", "training", "class", "1st", "", 5):
        with pytest.raises(ValueError, match=r"a stitch's name must consist of"):
            Supernet([residual, gated], [Link(tap, gated.tap("mul"), stitch=name)])


def test_genotypes_that_are_none_are_errors(pair):
    with pytest.raises(ValueError, match=rf"has {pair.n_var} variables, but one of shape \(3,\)"):
        pair.subnetwork([True, False, True])
    with pytest.raises(ValueError, match=r"booleans or 0 and 1, but 2"):
        pair.subnetwork(np.full(pair.n_var, 2))
    with pytest.raises(ValueError, match=r"booleans or 0 and 1, but nan"):
        pair.subnetwork(np.full(pair.n_var, np.nan))
    for wrong in ([None] * pair.n_var, [[1], [1, 2]], "01"):
        with pytest.raises(ValueError, match="a genotype"):
            pair.subnetwork(wrong)
    assert pair.subnetwork(np.ones(pair.n_var, dtype=int)).key == pair.subnetwork(np.ones(pair.n_var, dtype=bool)).key


def test_what_is_no_network_or_link_is_named(residual, gated, images):
    with pytest.raises(TypeError, match="built of modules and networks, not of str"):
        Supernet.build(["resnet50", residual], images)
    with pytest.raises(TypeError, match="links are Link"):
        Supernet([residual, gated], [("stem.0", "mul")])
    with pytest.raises(TypeError, match="links are Link"):
        Supernet([residual, gated], [Link("stem.0", "mul")])
    with pytest.raises(ValueError, match="normalize and output are for modules"):
        Supernet.build([residual, gated], normalize="timm")
    with pytest.raises(ValueError, match="pairs must be"):  # before anything is imported
        Supernet.build([Small(), Small()], "no image", pairs="some")
    assert Supernet.build(nn.ModuleList([Small(), Small()]), images).n_matches


def test_a_subnetwork_does_not_follow_the_array_it_was_made_from(pair):
    x = np.zeros(pair.n_var, dtype=bool)
    subnetwork = pair.subnetwork(x)
    x[:] = True
    assert subnetwork.key == pair.subnetwork(np.zeros(pair.n_var, dtype=bool)).key
    with pytest.raises(ValueError, match="read-only"):
        subnetwork.active[0] = True


def test_links_between_the_same_taps_stand_side_by_side(residual, gated):
    a, b, t = residual.tap("stem.2"), residual.tap("relu"), gated.tap("mul")
    supernet = Supernet([residual, gated], [Link(a, t), Link(b, t), Link(a, t, "conv3x3")])
    assert [link.source for link in supernet.links] == [a, a, b]


def test_a_kind_that_gives_the_wrong_shape_is_named(residual, gated):
    KINDS["wrong"] = Kind(lambda layout, c_in, c_out: nn.Conv2d(c_in, c_out + 1, 1), frozenset({Layout.IMAGE}))
    try:
        with pytest.raises(ValueError, match="a stitch of kind 'wrong' returns"):
            Supernet.build([residual, gated], kind="wrong")
    finally:
        del KINDS["wrong"]


def test_a_stitch_that_would_overwrite_its_input_does_not(residual, gated, images):
    def build(layout, c_in, c_out):
        return nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(c_in, c_out, 1))

    KINDS["overwriting"] = Kind(build, frozenset({Layout.IMAGE}))
    try:
        supernet = Supernet.build([residual, gated], kind="overwriting")
        for x in np.random.default_rng(0).random((20, supernet.n_var)) < 0.3:
            assert torch.equal(supernet.subnetwork(x).module()(images), interpret(supernet, x, images)[0])
    finally:
        del KINDS["overwriting"]


def test_given_stitches_are_copied(pair):
    other = Supernet(pair.networks, pair.links, stitches=pair.stitches.state_dict())
    before = {name: tensor.clone() for name, tensor in pair.stitches.state_dict().items()}
    with torch.no_grad():
        for parameter in other.stitches.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in pair.stitches.state_dict().items())


def test_stitches_given_must_be_those_needed(pair):
    tensors = pair.stitches.state_dict()
    first = next(iter(tensors))
    for wrong, message in (
        ({k: v for k, v in tensors.items() if k != first}, "it is missing"),
        (tensors | {first: tensors[first][:1]}, "is given"),
        (tensors | {first: tensors[first].double()}, "torch.float64 of shape"),
        (tensors | {"more": tensors[first]}, "no stitch uses the tensor 'more'"),
    ):
        with pytest.raises(ValueError, match=message):
            Supernet(pair.networks, pair.links, stitches=wrong)


def test_a_network_can_be_stitched_to_a_copy_of_itself(images):
    copies = [imported(Residual, name) for name in ("one", "two")]
    supernet = Supernet.build(copies)
    assert supernet.n_matches == len(copies[0].taps)


class Vision(nn.Module):
    """Convolutions at one size, more than there are matches with a network of tokens."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())])
        self.head = nn.Linear(3, 5)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def test_few_matches_are_told_with_what_would_give_more(mixer):
    with pytest.warns(UserWarning, match=r"only \d match.* With resize=True, .* there are \d+"):
        few = Supernet.build([mixer, Vision()], torch.rand(1, *IMAGE))
    more = Supernet.build([mixer, few.networks[1]], resize=True)
    assert more.n_matches >= 2 * few.n_matches


def test_modules_of_one_class_have_names_that_tell_them_apart(images):
    modules = [seeded(lambda width=width: Residual(width)) for width in (4, 8, 4)]
    names = [network.name for network in Supernet.build(modules, images).networks]
    assert names == ["residual_769", "residual_2_7k", "residual_769_2"]
