"""Several networks that are to be joined: imported, and checked."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ..util.progress import shown
from .importing import Normalization, check_name, default_names, unique_name
from .network import Network

# ------------------------------------------------------------------------------------------------------------ importing


def import_networks(
    networks: Iterable[Network | nn.Module],
    example_input: torch.Tensor | None = None,
    *,
    normalize: Normalization | str | None = None,
    output: str | int | None = None,
    progress: bool | None = None,
    of: str = "supernet",
) -> list[Network]:
    """Two or more modules and networks as networks that can be joined, with names of their own; see
    `Supernet.build`."""
    single = isinstance(networks, (Network, nn.Module)) and not isinstance(networks, nn.ModuleList)
    given = [networks] if single else list(networks)
    for item in given:
        if not isinstance(item, (Network, nn.Module)):
            raise TypeError(f"a {of} is built of modules and networks, not of {type(item).__name__}.")
    if len(given) < 2:
        raise ValueError(
            f"a {of} joins two or more networks, but {len(given)} is given."
            + " To bridge one to itself, give the links: Supernet([network], links)." * (of == "supernet")
            if given
            else f"no network is given; a {of} joins two or more."
        )
    modules = [item for item in given if isinstance(item, nn.Module)]
    if modules and example_input is None:
        raise ValueError(
            "modules are imported with an example input, but none is given. Pass one, such as torch.rand(1, 3, 224, "
            "224)."
        )
    if len(modules) < len(given) and (normalize is not None or output is not None):
        raise ValueError(
            "normalize and output are for modules, and some networks are imported already. "
            "Give the options to Network.from_module."
        )
    imported, names = [], {item.name for item in given if isinstance(item, Network)}
    defaults = default_names(modules)
    for item in shown(given, len(given), "import", "network", progress, delay=1):
        if isinstance(item, nn.Module):
            name = unique_name(defaults.pop(0), names)
            names.add(name)
            item = Network.from_module(item, example_input, name=name, output=output, normalize=normalize)
        imported.append(item)
    check_networks(imported)
    _warn_of_different_normalizations(imported)
    return imported


# --------------------------------------------------------------------------------------------------------------- checks


def check_networks(networks: Sequence[Network], of: str = "supernet") -> None:
    """Raise an error unless a supernet, or a pool, can be made of these."""
    if not networks:
        raise ValueError(f"no network is given; a {of} is made of one or more.")
    for network in networks:
        if not isinstance(network, Network):
            raise TypeError(
                f"a {of} is made of Network objects, not of {type(network).__name__}. Import modules with "
                f"Network.from_module{' or Supernet.build' * (of == 'supernet')}."
            )
        check_name(network.name)
    for name, count in Counter(network.name for network in networks).items():
        if count > 1:
            raise ValueError(
                f"{count} networks are named {name!r}. Give each its own name: Network.from_module(…, name=…)."
            )
    for what, remedy in (
        ("input_shape", "Import them with example inputs of one shape"),
        ("output_shape", "Only networks for the same task can be joined"),
    ):
        shapes = {network.name: getattr(network, what) for network in networks}
        if len(set(shapes.values())) > 1:
            described = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise ValueError(f"the networks differ in {what.replace('_', ' ')}: {described}. {remedy}.")


def _warn_of_different_normalizations(networks: Sequence[Network]) -> None:
    """Warn where networks will get the same input although they were trained on different ones."""
    plain = [network for network in networks if network.takes_unit_images is False]
    mixed = plain and len(plain) < len(networks) and any(network.normalization for network in networks)
    if mixed or len({network.trained.normalization for network in plain}) > 1:
        described = "; ".join("{}: mean {}, std {}".format(n.name, *n.trained.normalization) for n in plain)
        warnings.warn(
            f"these timm models were trained on images that were normalised ({described}), yet all networks will get "
            "the same input. Use normalize='timm' to make each one's normalisation part of its graph, and give images "
            "in [0, 1].",
            stacklevel=3,
        )
