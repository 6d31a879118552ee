"""Families: blocks that are found, links and lists that follow from them, and networks that do what the same modules
put together by hand do."""

import pickle
from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
import timm
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from pymoo.optimize import minimize
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from pymoo_stitch import Evaluations, Family, Link, Network, Report, Run, StitchProblem, Supernet, Switchable, Task
from pymoo_stitch.algorithms import Exhaustive
from pymoo_stitch.families import family_links, fvcore_cost, stages
from pymoo_stitch.families.links import _pairs
from pymoo_stitch.network import INPUT


def transformer(width, depth=3):
    torch.manual_seed(width)
    return timm.models.VisionTransformer(
        img_size=8, patch_size=2, in_chans=1, embed_dim=width, depth=depth, num_heads=2, num_classes=10
    ).eval()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class Pyramid(nn.Module):
    """A residual network of several stages."""

    def __init__(self, width, depths):
        super().__init__()
        torch.manual_seed(width)
        self.stem = nn.Conv2d(1, width, 1)
        self.stages = nn.ModuleList()
        for i, depth in enumerate(depths):
            down = nn.Conv2d(width * 2 ** (i - 1), width * 2**i, 2, 2) if i else nn.Identity()
            self.stages.append(nn.Sequential(down, nn.Sequential(*(Block(width * 2**i) for _ in range(depth)))))
        self.head = nn.Linear(width * 2**i, 10)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


IMAGE = torch.rand(1, 1, 8, 8)


def load(module, name):
    return Network.from_module(module, IMAGE, name=name)


@pytest.fixture(scope="module")
def modules():
    return {"small": transformer(8), "middle": transformer(12), "large": transformer(16)}


@pytest.fixture(scope="module")
def networks(modules):
    return [load(module, name) for name, module in modules.items()]


@pytest.fixture(scope="module")
def pyramids():
    return [load(Pyramid(3, [2, 2, 2]), "low"), load(Pyramid(4, [2, 4, 2]), "high")]


@pytest.fixture(scope="module")
def batch():
    return torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def family(networks, batch):
    family = Family.build(networks)
    family.fit(torch.rand(40, 1, 8, 8), progress=False)
    return family


# --------------------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("name", ["residual", "gated", "deep", "mixer"])
def test_cuts_are_the_taps_without_which_no_path_is_left(name, request):
    network = request.getfixturevalue(name)
    graph = nx.DiGraph((source, node.name) for node in network.nodes for source in node.inputs())
    expected = []
    for tap in network.taps:
        rest = graph.copy()
        rest.remove_node(tap.name)
        if not nx.has_path(rest, INPUT, network.output):
            expected.append(tap)
    assert list(network.cuts) == expected


def test_stages_of_small_networks(networks, pyramids):
    (only,) = stages(networks[0])
    assert [tap.name for tap in only.ends] == [f"blocks.{i}.add_2" for i in range(3)]
    assert (only.start.name, only.before(0), only.before(2)) == ("add", only.start, only.ends[1])
    assert [[len(stage) for stage in stages(network)] for network in pyramids] == [[2, 2, 2], [2, 4, 2]]
    assert stages(pyramids[1])[1].start.name == "stages.1.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "depths"),
    [
        (lambda: timm.create_model("deit_tiny_patch16_224"), [12]),
        (lambda: timm.create_model("swin_tiny_patch4_window7_224"), [2, 2, 6, 2]),
        (lambda: timm.create_model("resnet18"), [2, 2, 2, 2]),
        (lambda: timm.create_model("resnet50"), [3, 4, 6, 3]),
        (lambda: timm.create_model("convnext_tiny"), [3, 3, 9, 3]),
        (lambda: timm.create_model("efficientnet_b0"), [1, 2, 2, 3, 3, 4, 1]),
        (torchvision.models.resnet50, [3, 4, 6, 3]),
        (torchvision.models.swin_t, [2, 2, 6, 2]),
        (torchvision.models.vit_b_16, [12]),
    ],
)
def test_stages_of_known_networks(make, depths):
    network = Network.from_module(make().eval(), torch.rand(1, 3, 224, 224), name="network")
    assert [len(stage) for stage in stages(network)] == depths


def test_blocks_that_are_not_found_can_be_named():
    parts = [nn.Conv2d(1, 4, 3, padding=1), *(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()) for _ in range(3))]
    plain = load(nn.Sequential(*parts, nn.Flatten(), nn.Linear(256, 10)), "plain")
    with pytest.raises(ValueError, match=r"no blocks are found in plain.*blocks=\{'plain': \['module', …\]\}"):
        stages(plain)
    (only,) = stages(plain, ["1", "2", "3"])
    assert [tap.name for tap in (only.start, *only.ends)] == ["0", "1.1", "2.1", "3.1"]
    other = load(nn.Sequential(*parts, nn.Flatten(), nn.Linear(256, 10)), "other")
    names = ["1", "2", "3"]
    assert len(Family.build([plain, other], blocks={"plain": names, "other": names})) == 2 + 7
    with pytest.raises(ValueError, match="blocks are named for 'else', but the networks are plain, other"):
        Family.build([plain, other], blocks={"else": names})
    with pytest.raises(ValueError, match="in the order in which they run"):
        stages(plain, ["2", "1"])
    with pytest.raises(ValueError, match="has no tap 'blocks'"):
        stages(plain, ["blocks"])
    with pytest.raises(TypeError, match="a list of names of modules, not the string 'blocks'"):
        stages(plain, "blocks")


def test_a_block_that_does_not_end_in_a_cut_is_refused(networks):
    with pytest.raises(ValueError, match=r"its last tensor, blocks.0.mlp.fc2, does not lie on every path"):
        stages(networks[0], ["blocks.0.mlp"])


# ---------------------------------------------------------------------------------------------------------------- links


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_two_blocks_belong_to_the_first_window_that_holds_both(depth, window, stride, forward):
    expected = {}
    for j, k in product(range(depth), repeat=2):
        firsts = [first for first in range(0, depth, stride) if first <= min(j, k) and max(j, k) < first + window]
        if firsts and (j < k or not forward):
            expected[j, k] = firsts[0]
    found = list(_pairs(depth, depth, window, stride, forward))
    assert {(j, k): shared for j, k, shared in found} == expected
    assert len(found) == len(expected)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_stages_of_unequal_depth_map_each_block_to_an_earlier_one(front, end, forward):
    if front != end:
        found = list(_pairs(front, end, 2, 1, forward))
        assert found == [(j, k, j) for k in range(end) for j in range(front) if k * front // end == j and j < k]


def test_links_lead_from_a_block_to_what_another_reads(networks, pyramids):
    links = family_links(networks)
    assert len(links) == 2 * 7
    assert {str(link) for link in links[:4]} == {
        "small:blocks.0.add_2 → middle:add",
        "small:blocks.0.add_2 → middle:blocks.0.add_2",
        "small:blocks.1.add_2 → middle:add",
        "small:blocks.1.add_2 → middle:blocks.0.add_2",
    }
    assert len({link.stitch for link in links[:4]}) == 1
    assert len({link.stitch for link in links}) == 4
    assert {(link.source.network, link.target.network) for link in family_links(networks[::-1], pairs="all")} == {
        ("small", "middle"),
        ("middle", "large"),
        ("small", "large"),
    }
    low, high = pyramids
    ends = {
        name: [[tap.name for tap in stage.ends] for stage in stages(n)] for name, n in (("low", low), ("high", high))
    }
    found = [(link.source.name, link.target.name, link.stitch[-1]) for link in family_links([high, low])]
    assert found == [
        (ends["low"][0][0], ends["high"][0][0], "0"),
        (ends["low"][1][0], ends["high"][1][0], "0"),
        (ends["low"][1][1], ends["high"][1][1], "1"),
        (ends["low"][1][1], ends["high"][1][2], "1"),
    ]


# -------------------------------------------------------------------------------------------------------------- listing


@pytest.mark.parametrize(("pairs", "final_norm"), [("all", True), ("neighbours", True), ("neighbours", False)])
def test_the_list_holds_each_set_of_links_that_are_all_in_use_and_no_other(networks, pairs, final_norm):
    family = Family.build(networks, pairs=pairs, final_norm=final_norm)
    supernet = family.supernet
    stitches = [i for i, link in enumerate(supernet.links) if link.kind == "linear"]
    around = [i for i, link in enumerate(supernet.links) if link.kind == "identity"]
    assert len(around) == (0 if final_norm else 3)
    expected = set()
    for number in range(4 if pairs == "all" else 2):
        for chosen in combinations(stitches, number):
            for network in networks:
                x = supernet.references[network.name].copy()
                x[list(chosen)] = True
                x[around] = number > 0
                subnetwork = supernet.subnetwork(x)
                if sum(link.kind == "linear" for link in subnetwork.links) == number:
                    expected.add(subnetwork.key)
    assert {subnetwork.key for subnetwork in family} == expected
    chains = (7**2 + 2**2 + 3**2 + 2**2) // 2  # the second stitch leaves no earlier than the first has entered
    assert len(family) == len(expected) == (3 + 3 * 7 + chains if pairs == "all" else 3 + 2 * 7)
    assert len(family.one_stitch()) == (3 * 7 if pairs == "all" else 2 * 7)
    for x in family.one_stitch():
        assert sum(link.kind == "linear" for link in family.subnetwork(x).links) == 1


def test_ids_are_in_the_order_of_cost_and_a_budget_buys_the_most_expensive_that_it_pays(family):
    assert len(family) == 3 + 2 * 7 == len(family.genotypes) == len(family.costs)
    assert [subnetwork.cost for subnetwork in family] == family.costs.tolist() == sorted(family.costs)
    for budget in range(family.costs[0], family.costs[-1] + 2, 5_000):
        affordable = [id for id, cost in enumerate(family.costs) if cost <= budget]
        assert family.at_most(budget) == affordable[-1]
    assert family.at_most(float("inf")) == len(family) - 1
    assert [family[id].outputs[0].name for id in family.anchors.values()] == ["small", "middle", "large"]
    assert [family[id].n_stitches for id in family.anchors.values()] == [0, 0, 0]
    alone = sum(parameter.numel() for parameter in family.module().parameters())
    assert family.n_parameters == alone
    assert f"17 members in {alone:,} parameters" in str(family)
    assert "small:blocks.0.add_2 → middle:add" in str(family)


def test_codes_are_ids_in_which_neighbours_differ_in_one_bit(family):
    assert family.n_var == 5
    assert family.codes.shape == (17, 5)
    assert (np.abs(np.diff(family.codes.astype(int), axis=0)).sum(1) == 1).all()
    assert [family.id(code) for code in family.codes] == list(range(17))
    every = sorted((family.id(x), x) for x in product([0, 1], repeat=5))
    assert {id for id, _ in every} == set(range(17))
    numbers = [i ^ (i >> 1) for i in range(32)]  # the Gray code, in its order
    ids = [family.id([int(bit) for bit in f"{number:05b}"]) for number in numbers]
    assert max(np.abs(np.diff(ids))) == 1
    assert np.array_equal(family.subnetwork(family.codes[6]).x, family.genotypes[6])
    assert family.active(family.codes[3]).all()
    assert {name: family.id(code) for name, code in family.references.items()} == family.anchors


def test_a_family_is_a_space_to_search(family, batch):
    task = Task(validation=(batch, torch.tensor([1, 2, 3])))
    problem = StitchProblem(family, task)
    assert problem.references().get("name").tolist() == ["small", "middle", "large"]
    F = problem.evaluate(family.codes, return_values_of=["F"])
    assert np.array_equal(F[:, 0], family.costs)
    assert problem.active(family.codes[0]).tolist() == [True] * 5
    assert StitchProblem(family.supernet, task).n_var == family.supernet.n_var


def test_what_a_family_depends_on_is_in_its_digest(networks, tmp_path):
    family = Family.build(networks, final_norm=False)
    family.supernet.save(tmp_path / "family")
    again = Family(Supernet.load(tmp_path / "family"))
    assert again.digest() == family.digest()
    assert np.array_equal(again.genotypes, family.genotypes)
    assert Family(family.supernet, chains=True).digest() != family.digest()
    assert len(Family(Family.build(networks, pairs="all").supernet)) == len(Family.build(networks, pairs="all"))
    family.fit(torch.rand(20, 1, 8, 8), progress=False)
    assert again.digest() != family.digest()


# -------------------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize("final_norm", [True, False])
def test_networks_compute_what_their_modules_compute_put_together_by_hand(modules, networks, batch, final_norm):
    family = Family.build(networks, final_norm=final_norm)
    family.fit(torch.rand(40, 1, 8, 8), progress=False)
    places = {f"blocks.{i}.add_2": i + 1 for i in range(3)} | {"add": 0}
    for subnetwork in family:
        links = [link for link in subnetwork.links if link.kind == "linear"]
        now = modules[links[0].source.network if links else subnetwork.outputs[0].name]
        with torch.no_grad():
            x, at = now._pos_embed(now.patch_embed(batch)), 0
            for link in links:
                x = now.blocks[at : places[link.source.name]](x)
                x = family.supernet.stitches[link.stitch](x)
                now, at = modules[link.target.network], places[link.target.name]
            x = now.blocks[at:](x)
            expected = now.head((x if links and not final_norm else now.norm(x))[:, 0])
            torch.testing.assert_close(subnetwork.module()(batch), expected, rtol=1e-4, atol=1e-5)


def test_stitches_are_shared_and_fitted_for_all_links_that_share_them(family):
    assert set(family.supernet.stitches) == {link.stitch for link in family_links(family.networks)}
    report = family.fit(torch.rand(40, 1, 8, 8), progress=False)
    assert report.method == "least squares"
    assert report.errors.keys() == set(family.supernet.stitches)
    assert max(report.errors.values()) < 1


def test_hierarchical_families_run(pyramids, batch):
    family = Family.build(pyramids)
    assert len(family) == 6
    assert family.fit(torch.rand(40, 1, 8, 8), progress=False).errors
    for subnetwork in family:
        assert subnetwork.module()(batch).shape == (3, 10)
    with pytest.raises(ValueError, match="low has no norm between its last block and its output"):
        Family.build(pyramids, final_norm=False)


# ------------------------------------------------------------------------------------------------------------ switching


def test_one_module_is_each_of_the_networks_and_holds_every_weight_once(family, batch):
    network = family.module()
    memory = {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}
    assert len(set(memory.values())) == len(memory)
    assert network.selected == len(family) - 1
    assert network.ids == list(range(len(family)))
    assert not any(part.training for part in network.modules())
    for id in np.random.default_rng(1).permutation(len(family)).tolist():
        assert network.select(id).selected == id
        assert torch.equal(network(batch), family[id].module()(batch))
    assert {name: tensor.data_ptr() for name, tensor in network.state_dict().items()} == memory
    assert network.at_most(family.costs[4]).selected == family.at_most(family.costs[4]) == 4
    again = pickle.loads(pickle.dumps(network))
    assert again.selected == 4
    assert torch.equal(again(batch), network(batch))


def test_a_module_of_some_networks_holds_what_these_need(family, batch):
    some = family.module([family.anchors["small"], family.anchors["middle"]])
    expected = sum(network.n_parameters for network in family.networks[:2])
    assert sum(parameter.numel() for parameter in some.parameters()) == expected
    assert some.costs.tolist() == [network.cost for network in family.networks[:2]]
    with pytest.raises(KeyError, match="there is no subnetwork 3 in this module; choose from "):
        some.select(3)
    with pytest.raises(ValueError, match=r"no subnetwork costs at most 7 multiply-adds; the cheapest costs \d"):
        some.at_most(7)


def test_weights_of_a_switchable_module_can_be_loaded_and_moved(family, pyramids, batch):
    network = family.module()
    expected = network(batch)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for parameter in network.parameters():
        parameter.data.zero_()
    assert not torch.equal(network(batch), expected)
    network.load_state_dict(state)
    assert torch.equal(network(batch), expected)
    assert torch.equal(family[len(family) - 1].module()(batch), expected)
    family = Family.build(pyramids)
    family.fit(torch.rand(8, 1, 8, 8), progress=False)
    convolutional = family.module().to("meta")
    assert convolutional.select(2)(batch.to("meta")).device.type == "meta"
    assert {tensor.device.type for tensor in convolutional.state_dict().values()} == {"meta"}


def test_everything_is_evaluated_with_a_journal_and_for_a_report(family, tmp_path):
    generator = torch.Generator().manual_seed(1)
    split = torch.rand(20, 1, 8, 8, generator=generator), torch.arange(20) % 10
    problem = StitchProblem(family, Task(validation=split, test=split))
    journal = tmp_path / "run.sqlite"
    for replayed in (0, len(family)):
        evaluations = Evaluations(journal=journal)
        result = minimize(problem, Exhaustive(), evaluator=evaluations)
        assert (evaluations.real, evaluations.replayed) == (len(family), replayed)
    everything = problem.exhaust()
    front = everything[everything.get("on_front")].get("F")
    assert {tuple(row) for row in result.F} == {tuple(row) for row in front}
    report = Report([Run.read(journal)], problem)
    assert "stitches.png" not in {path.name for path in report.write(tmp_path / "report")}
    with pytest.raises(TypeError, match="cannot list what it holds"):
        minimize(StitchProblem(family.supernet, problem.task), Exhaustive())


def test_a_family_is_saved_and_loaded(family, batch, tmp_path):
    family.save(tmp_path / "family.safetensors")
    loaded = Family.load(tmp_path / "family.safetensors")
    assert (len(loaded), loaded.digest()) == (len(family), family.digest())


@pytest.mark.parametrize("budget", ["3M", None, True])
def test_a_budget_is_a_number(family, budget):
    with pytest.raises(TypeError, match="a cost is a number of multiply-adds"):
        family.at_most(budget)


def test_any_subnetworks_of_one_space_can_be_switched_between(pair, pool, images):
    chosen = [pair.subnetwork(x) for x in np.random.default_rng(0).random((5, pair.n_var)) < 0.4]
    network = Switchable(chosen)
    for id in network.ids:
        assert torch.equal(network.select(id)(images), chosen[id].module()(images))
    with pytest.raises(ValueError, match="different spaces"):
        Switchable([*chosen, pool.subnetwork(np.zeros(pool.n_var))])
    with pytest.raises(ValueError, match="no subnetwork is given"):
        Switchable([])
    with pytest.raises(TypeError, match="a Switchable switches between subnetworks, not Supernet"):
        Switchable([pair])
    alone = next(subnetwork for subnetwork in chosen if subnetwork.n_stitches)
    alone.retrain(torch.rand(16, 3, 8, 8), samples=16, progress=False)
    with pytest.raises(ValueError, match="has stitches of its own"):
        Switchable(chosen)


# ---------------------------------------------------------------------------------------------------------- fine-tuning


@pytest.fixture(scope="module")
def digits_data():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return torch.tensor(images[order] / 16).float().view(-1, 1, 8, 8), torch.tensor(labels[order])


@pytest.fixture(scope="module")
def trained(digits_data):
    """Two networks that know digits, one better than the other."""
    images, labels = digits_data
    networks = []
    for name, width in (("low", 4), ("high", 8)):
        module = Pyramid(width, [3])
        optimizer = torch.optim.AdamW(module.train().parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=200)
        torch.manual_seed(0)
        for _ in range(10):
            for rows in torch.randperm(1000).split(50):
                loss = F.cross_entropy(module(images[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        networks.append(load(module.eval(), name))
    return networks


def right(family, images, labels):
    """How many are right, of each network that has a stitch."""
    with torch.no_grad():
        return [
            (subnetwork.module()(images).argmax(1) == labels).float().mean().item()
            for subnetwork in family
            if subnetwork.n_stitches
        ]


@pytest.mark.parametrize("networks", [0.0, 0.5])
def test_fine_tuning_makes_stitched_networks_better_and_touches_nothing_else(trained, digits_data, networks):
    images, labels = digits_data
    weights = [{name: weight.clone() for name, weight in network.weights.items()} for network in trained]
    family = Family.build(trained)
    family.fit(images[:200], progress=False)
    before, held = right(family, images[1000:], labels[1000:]), family[1]
    digest, first = family.digest(), held.module()(images[:2])
    options = {"labels": True, "networks": networks, "samples": 6_000, "lr": 1e-2, "progress": False}
    report = family.finetune((images[:1000], labels[:1000]), **options)
    assert report.method == "finetune"
    assert np.mean(report.losses[-20:]) < 0.7 * np.mean(report.losses[:20])
    after = right(family, images[1000:], labels[1000:])
    assert np.mean(after) > np.mean(before) + 0.02
    for network, saved in zip(trained, weights, strict=True):
        assert all(torch.equal(weight, saved[name]) for name, weight in network.weights.items())
    assert family.digest() != digest
    assert not torch.equal(held.module()(images[:2]), first)  # a subnetwork that was there before sees the change
    for own, former in zip(family.networks, trained, strict=True):
        assert (own is former) == (networks == 0)
        for name, weight in own.weights.items():
            assert isinstance(weight, nn.Parameter) == isinstance(former.weights[name], nn.Parameter)
            assert not weight.requires_grad
            if not networks or not isinstance(weight, nn.Parameter):  # among them the statistics of batch norms
                assert torch.equal(weight, former.weights[name])
    if networks:
        changed = [not torch.equal(w, trained[1].weights[name]) for name, w in family.networks[1].weights.items()]
        assert sum(changed) > len(changed) / 3


def test_tuned_networks_are_what_everything_else_sees(trained, digits_data, tmp_path):
    images, labels = digits_data
    family = Family.build(trained)
    family.fit(images[:200], progress=False)
    problem = StitchProblem(family, Task(validation=(images[1000:], labels[1000:])))
    X = family.codes
    problem.evaluate(X)
    family.finetune((images[:500], labels[:500]), labels=True, networks=1.0, samples=500, progress=False)
    family.supernet.save(tmp_path / "tuned")
    loaded = Family(Supernet.load(tmp_path / "tuned"))
    assert loaded.digest() == family.digest()
    fresh = StitchProblem(loaded, problem.task)
    assert np.array_equal(problem.evaluate(X, return_values_of=["F"]), fresh.evaluate(X, return_values_of=["F"]))
    for id in (0, 3, len(family) - 1):
        assert torch.equal(family[id].module()(images[:5]), loaded[id].module()(images[:5]))
    with pytest.raises(ValueError, match="only networks of the same structure and order"):
        family.supernet.take_networks(family.networks[::-1])


def test_a_seed_decides_what_fine_tuning_gives(trained, digits_data):
    images, _ = digits_data
    digests = []
    for seed in (1, 1, 2):
        family = Family.build(trained)
        family.finetune(images[:200], samples=320, networks=0.1, seed=seed, progress=False)
        digests.append(family.digest())
    assert digests[0] == digests[1] != digests[2]


def test_fine_tuning_refuses_what_cannot_learn(family):
    images = torch.rand(8, 1, 8, 8)
    anchors = family.genotypes[list(family.anchors.values())]
    with pytest.raises(ValueError, match="none of the genotypes uses a stitch"):
        family.finetune(images, genotypes=anchors, samples=8, progress=False)
    with pytest.raises(ValueError, match=r"networks must be a fraction of lr, such as 0.1, but is -1"):
        family.finetune(images, networks=-1, progress=False)
    with pytest.raises(TypeError, match="networks"):
        family[3].retrain(images, networks=0.1, progress=False)


def test_links_around_norms_have_nothing_to_fit(networks):
    family = Family.build(networks, final_norm=False)
    images = torch.rand(16, 1, 8, 8)
    learning = {link.stitch for link in family.supernet.links if link.kind == "linear"}
    for report in (
        family.fit(images, method="least-squares", progress=False),
        family.fit(images, method="adam", progress=False, samples=32),
        family.finetune(images, progress=False, samples=32),
    ):
        assert report.errors.keys() == learning
    only = Supernet(networks, [link for link in family.supernet.links if link.kind == "identity"])
    with pytest.raises(ValueError, match="least squares fits affine kinds only"):
        only.fit(images, progress=False)


# ---------------------------------------------------------------------------------------------------------------- costs


def test_norms_pooling_and_interpolation_cost_what_fvcore_says(networks, pyramids):
    family = Family.build(networks)
    width, cost = 8, networks[0].cost
    assert fvcore_cost(family[family.anchors["small"]]) == cost + 5 * (2 * 3 + 1) * 17 * width
    low = Family.build(pyramids).supernet.subnetwork([0] * 5 + [0])
    assert fvcore_cost(low) == pyramids[0].cost + 2 * 2 * (3 * 64 + 6 * 16 + 12 * 4)
    parts = [
        nn.Conv2d(1, 4, 1),
        nn.GroupNorm(2, 4, affine=False),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 10),
    ]
    pooled = load(nn.Sequential(*parts), "pooled")
    plain = Supernet([pooled], [Link(pooled.tap("0"), pooled.tap("2"), "linear+relu")])
    assert fvcore_cost(plain.subnetwork([0])) == pooled.cost + 4 * 256 + 256
    stitched = plain.subnetwork(
        [1]
    )  # two adapters, for 4×4 and 2×2 positions, each with an interpolation and two norms
    assert fvcore_cost(stitched) == stitched.cost + (4 + 2 + 2) * (4 * 16 + 4 * 4)


DEIT = """
1258411200 4608338304 17582740224 4696010496 4316862720 4798437888 4419290112 4040142336 4521717504 4142569728
3763421952 4244997120 3865849344 3486701568 3968276736 3589128960 3209981184 3691556352 3312408576 2933260800
3414835968 3035688192 2656540416 3138115584 2758967808 2379820032 2861395200 2482247424 2103099648 2584674816
2205527040 1826379264 2307954432 1928806656 1549658880 2031234048 1652086272 17961426432 16505958912 18340574208
16885106688 15429639168 17264254464 15808786944 14353319424 16187934720 14732467200 13276999680 15111614976
13656147456 12200679936 14035295232 12579827712 11124360192 12958975488 11503507968 10048040448 11882655744
10427188224 8971720704 10806336000 9350868480 7895400960 9730016256 8274548736 6819081216 8653696512 7198228992
5742761472 7577376768 6121909248
"""
SWIN = """
4509194496 8768534784 15467826176 8797436160 15220458496 8797436160 14619249664 8797436160 8442491136 8442491136
8087546112 7732601088 7732601088 7377656064 7022711040 7022711040 6667766016 6312820992 6312820992 5957875968 5602930944
5602930944 5247985920 4893040896 14026420224 13753964544 13481508864 13209053184 12936597504 12664141824 12391686144
12119230464 11846774784 11574319104 11301863424 11029407744 10756952064 10484496384 10212040704 9939585024 9667129344
"""
"""What [SN] published of its networks: the anchors, then those with a stitch, in the order in which links are made (of
Swin: stage by stage, and within one from Ti to S first)."""


def published(names):
    image = torch.rand(1, 3, 224, 224)
    return [Network.from_module(timm.create_model(name), image, name=name) for name in names]


def by_link(family):
    """The listed networks with one stitch, by its link."""
    found = {}
    for subnetwork in family:
        links = [link for link in subnetwork.links if link.kind != "identity"]
        if len(links) == 1:
            found[links[0]] = subnetwork
    return found


def n_parameters(subnetwork):
    return sum(parameter.numel() for parameter in subnetwork.module().parameters())


@pytest.mark.slow
def test_the_published_deit_family():
    networks = published([f"deit_{size}_patch16_224" for size in ("tiny", "small", "base")])
    family = Family.build(networks, final_norm=False)
    found, links = by_link(family), family_links(networks)
    anchors = [fvcore_cost(family[id]) for id in family.anchors.values()]
    assert anchors + [fvcore_cost(found[link]) for link in links] == [int(cost) for cost in DEIT.split()]
    assert len(family) == 71
    assert family.n_parameters == 118_403_448
    assert len(Family.build(networks, pairs="all")) == 732
    # The published numbers of parameters leave out class token and positions, and count the norm that is not used.
    found = by_link(Family.build(networks))
    for id, expected in {3: 22_345_960, 4: 20_571_496, 5: 22_790_824, 37: 88_190_440, 70: 29_742_952}.items():
        left_out = (197 + 1) * links[id - 3].source.channels
        assert n_parameters(found[links[id - 3]]) == expected + left_out
    blocks = {(9, 3): 2.1, (6, 6): 2.9, (3, 9): 3.8}  # of Ti and S, and what the paper says they cost
    for (front, end), cost in blocks.items():
        (link,) = (
            k
            for k in links
            if str(k).endswith(
                f"tiny_patch16_224:blocks.{front - 1}.add_2 → deit_small_patch16_224:blocks.{11 - end}.add_2"
            )
        )
        assert round(fvcore_cost(found[link]) / 1e9, 1) == cost


@pytest.mark.slow
def test_the_published_swin_family_runs_and_costs_what_was_published():
    """Its networks keep their final norm."""
    networks = published([f"swin_{size}_patch4_window7_224" for size in ("tiny", "small", "base")])
    family = Family.build(networks)
    found = by_link(family)
    links = sorted(family_links(networks), key=lambda link: link.stitch.split("_")[-2])
    anchors = [fvcore_cost(family[id]) for id in family.anchors.values()]
    assert anchors + [fvcore_cost(found[link]) for link in links] == [int(cost) for cost in SWIN.split()]
    assert len(family) == 41
    images = torch.rand(8, 3, 224, 224)
    assert family.fit(images, progress=False).errors
    assert family[20].n_stitches == 1
    assert family[20].module()(images[:1]).shape == (1, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_family_of_resnets_runs(library):
    make = timm.create_model if library == "timm" else torchvision.models.get_model
    family = Family.build([make("resnet18"), make("resnet50")], torch.rand(1, 3, 224, 224))
    assert len(family) == 2 + 2 + 3 + 5
    images = torch.rand(8, 3, 224, 224)
    assert family.fit(images, progress=False).errors
    network = family.module()
    for id in range(0, len(family), 4):
        torch.testing.assert_close(network.select(id)(images[:1]), family[id].module()(images[:1]))


# ------------------------------------------------------------------------------------------------------------ bad input


def test_bad_input_is_named(family, networks, pyramids, pair):
    with pytest.raises(ValueError, match="two or more networks, but 1 is given"):
        Family.build(networks[:1])
    with pytest.raises(ValueError, match="two or more networks, but 1 is given"):
        family_links(networks[:1])
    with pytest.raises(ValueError, match="window must be a number of blocks, at least 1, but is 0"):
        Family.build(networks, window=0)
    with pytest.raises(ValueError, match="stride must be a number of blocks, at least 1, but is 0"):
        Family.build(networks, stride=0)
    with pytest.raises(ValueError, match="pairs must be 'neighbours' or 'all', but is 'some'"):
        Family.build(networks, pairs="some")
    for id in (17, -1, 1.5, "small", True):
        with pytest.raises(IndexError, match="ids go from 0 to 16"):
            family[id]
    with pytest.raises(
        ValueError, match=rf"no subnetwork costs at most 10 multiply-adds; the cheapest costs {family.costs[0]:,}"
    ):
        family.at_most(10)
    with pytest.raises(ValueError, match="small has 1 stages and low has 3"):
        Family.build([networks[0], pyramids[0]])
    with pytest.raises(ValueError, match=r"stage 1 of small is tokens with class token \(17, 8\) and of flat image"):
        Family.build([networks[0], load(Pyramid(3, [3]), "flat")])
    with pytest.raises(ValueError, match="there is nothing to join in"):
        Family.build([load(Pyramid(width, [1, 2]), f"of{width}") for width in (2, 3)])
    with pytest.raises(ValueError, match="no blocks are found in"):
        Family.build(pair.networks)
    with pytest.raises(ValueError, match="lead from a cheaper anchor to a more expensive one, but"):
        Family(pair)
    with pytest.raises(ValueError, match="a family needs links"):
        Family(Supernet(networks, []))
    with pytest.raises(TypeError, match="made of a Supernet, not of list"):
        Family(networks)
    with pytest.raises(ValueError, match="a genotype of this family is 5 booleans"):
        family.subnetwork([0, 1])


def test_lists_without_end_are_refused(networks, monkeypatch):
    monkeypatch.setattr("pymoo_stitch.families.family.MOST", 20)
    with pytest.raises(ValueError, match=r"more than 20 members, too many to list. Use chains=False"):
        Family.build(networks, pairs="all")
