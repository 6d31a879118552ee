"""How similar the taps of networks are on the same images, by centred kernel alignment (CKA)."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..network import Network, Tap, outputs_of

LEAST = 4
"""Images that a batch must have: the unbiased estimator divides by n − 3."""


class CKA:
    """Linear CKA between all taps of networks, estimated without bias from batches of images.

    It is a `stitches.Weight`: `match(networks, weight=CKA(networks, images))` prefers matches of taps that are similar
    on these images, and `Supernet.build(networks, weight=…)` does so too.

    The plain estimator is near 1 for any two taps that have more features than there are images, also for noise. This
    one (HSIC₁ of Song et al., averaged over batches before the ratio is taken) is 0 on average for what is independent,
    and may therefore be a little below 0, or above 1.

    All pairs come from the kernels of the taps, an n×n matrix for a batch of n images: features are never compared with
    one another, and sizes and layouts may differ.

    >>> a, b = get_problem("digits").space.networks
    >>> similarity = CKA([a, b], torch.rand(64, 1, 8, 8))
    >>> similarity(a.taps, b.taps).shape == (len(a.taps), len(b.taps))
    True
    >>> bool(np.allclose(np.diag(similarity(a.taps, a.taps)), 1))
    True

    :param networks: whose taps are compared; all take the same images.
    :param images: N×…, as the networks take them: a tensor, or batches of images.
    :param batch_size: how many images of a tensor are taken at a time. A rest of fewer than 4 is left out.
    """

    def __init__(
        self, networks: Iterable[Network], images: torch.Tensor | Iterable[torch.Tensor], *, batch_size: int = 32
    ):
        networks = list(networks)
        self._taps = {tap: i for i, tap in enumerate(tap for network in networks for tap in network.taps)}
        batches = images.split(batch_size) if isinstance(images, torch.Tensor) else images
        total = np.zeros((len(self._taps), len(self._taps)))
        self.batches = 0
        for batch in batches:
            if len(batch) >= LEAST:
                total += hsic(np.stack([kernel for network in networks for kernel in _kernels(network, batch)]))
                self.batches += 1
        if not self.batches:
            raise ValueError(f"CKA needs a batch of {LEAST} images or more, and none is given.")
        own = np.sqrt(np.clip(np.diag(total), 0, None))
        norms = own[:, None] * own
        # a constant tap is similar to none
        self._values = np.divide(total, norms, out=np.zeros_like(total), where=norms > 0)

    def __call__(self, first: Sequence[Tap], second: Sequence[Tap]) -> np.ndarray:
        """The CKA of each tap of one sequence with each of another."""
        if unknown := [tap for tap in (*first, *second) if tap not in self._taps]:
            raise ValueError(f"CKA was not computed for {unknown[0]}: give its network to CKA as well.")
        rows, columns = ([self._taps[tap] for tap in taps] for taps in (first, second))
        return self._values[np.ix_(rows, columns)]


def hsic(kernels: np.ndarray) -> np.ndarray:
    """The unbiased estimate HSIC₁ [T, T] of the dependence between each pair of T kernels [T, n, n], n of at least
    4."""
    t, n, _ = kernels.shape
    kernels = kernels * (1 - np.eye(n))
    rows = kernels.sum(2)
    sums = rows.sum(1)
    flat = kernels.reshape(t, -1)
    estimate = flat @ flat.T + np.outer(sums, sums) / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows @ rows.T
    return estimate / (n * (n - 3))


def kernel(output: torch.Tensor) -> np.ndarray:
    """The products [n, n] of a tensor's features for each pair of images; centred, which changes no HSIC, but keeps its
    sums exact."""
    products = torch.zeros(len(output), len(output), dtype=torch.float64)
    for part in output.flatten(1).split(2**17, dim=1):  # in float64, a large tensor as a whole is too large
        features = part.double()
        features = features - features.mean(0)
        products += features @ features.T
    return products.numpy()


def _kernels(network: Network, images: torch.Tensor) -> list[np.ndarray]:
    """For each tap its kernel."""
    names = {tap.name for tap in network.taps}
    found: dict[str, np.ndarray] = {}
    for name, output in outputs_of(network, images):
        if name in names:
            found[name] = kernel(output)
    return [found[tap.name] for tap in network.taps]
