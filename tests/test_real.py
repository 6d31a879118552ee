"""Real networks, trained on CIFAR-10 and ImageNet, where a folder beside the project holds them."""

import importlib.util
from itertools import islice

import numpy as np
import pytest
import torch
from conftest import DATA

from pymoo_stitch import ChainSpace, ClassMap, Network, Pool, StitchProblem, Supernet, Task, search_chains

FOLDER = DATA


def trained_networks():
    """The module that loads them."""
    if not (FOLDER / "networks.py").is_file():
        pytest.skip(f"there are no trained networks in {FOLDER}")
    spec = importlib.util.spec_from_file_location("networks", FOLDER / "networks.py")
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    return data


@pytest.mark.slow
def test_single_stitches_between_trained_networks_keep_their_accuracy():
    data = trained_networks()
    images = data.cifar10("train")[0][:1_000].float() / 255
    validation, labels = data.cifar10("validation")
    validation, labels = validation[:200].float() / 255, labels[:200]
    supernet = Supernet.build(
        [
            Network.from_module(
                data.load(name, normalized=False), images[:1], name=name, normalize=data.NETWORKS[name][2]
            )
            for name in ("resnet20", "resnet56")
        ]
    )
    supernet.fit(images, batch_size=100, positions=64)

    def accuracy(x):
        with torch.inference_mode():
            return (supernet.subnetwork(x).module()(validation).argmax(1) == labels).float().mean().item()

    references = {name: accuracy(x) for name, x in supernet.references.items()}
    assert min(references.values()) > 0.85
    found = []
    for number in range(0, len(supernet.links), 11):
        x = supernet.references[supernet.links[number].target.network].copy()
        x[number] = True
        found.append(accuracy(x))
    print(f"references {references}, with one stitch {np.round(found, 3)}")
    assert np.median(found) > 0.8


@pytest.mark.slow
def test_chains_of_trained_networks_beside_the_networks_and_themselves():
    data = trained_networks()
    images, labels = data.imagenet(limit=96)
    images = images[:, :, 16:240, 16:240]
    networks = [
        Network.from_module(
            data.load(name, normalized=False), torch.rand(1, 3, 224, 224), name=name, normalize=data.NETWORKS[name][2]
        )
        for name in ("squeezenet1_1", "mobilenet_v2", "tf_efficientnet_lite0")
    ]
    pool = Pool(networks, images[:48])
    classes = sorted(set(labels.tolist()))
    validation = images[48:], torch.tensor([classes.index(label) for label in labels[48:].tolist()])
    problem = StitchProblem(ChainSpace(pool), Task(validation=validation, head=ClassMap(classes)), batch_size=16)

    def accuracies(chains):
        heads = [problem.task.head] * len(chains)
        outcomes = problem.engine.evaluate(chains, problem.task["validation"], ["accuracy"], heads=heads)
        return [outcome.metrics["accuracy"] for outcome in outcomes]

    own = problem.references().get("accuracy")
    found = search_chains(pool, length=18, start=pool["squeezenet1_1"][0])
    stitched = [chain for chain, _ in islice(found, 6) if chain.n_stitches]
    chains = accuracies(stitched)
    (itself,) = accuracies([pool.self_stitched("squeezenet1_1")])
    print(f"networks {own}, chains {chains}, squeezenet1_1 stitched to itself {itself}")
    assert own.min() > 0.6
    assert max(chains) > own[0] - 0.1
    assert itself > own[0] - 0.1
