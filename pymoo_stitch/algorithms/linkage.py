"""Which variables belong together, learned from a population."""

import numpy as np
from scipy.cluster.hierarchy import linkage

# Of independent variables, 2n times the mutual information in nats has a χ² distribution with one degree of freedom and
# exceeds this in one of ten thousand pairs. Without such a bound, the tree of a random population is one of chance, and
# most of a first GOM is spent on it: three times the evaluations to the front of zeromax-onemax, half as many again for
# traps.
SIGNIFICANT = 15.14


def linkage_tree(x: np.ndarray, random_state: np.random.Generator) -> list[np.ndarray]:
    """Subsets of the variables from the bottom of the tree to its top: UPGMA on normalised mutual information.

    The root is left out, as are those parts that add nothing: both children where they determine one another, parents
    whose children have nothing to do with one another, and variables that are constant. Ties are broken at random.

    :param x: genotypes (n, n_var), bool.
    :return: arrays of variables. Each variable that varies is in at least one; two of them are disjoint, or one is
        within the other.
    """
    varying = random_state.permutation(np.flatnonzero(x.any(0) & ~x.all(0)))  # a random order, for random ties
    size = len(varying)
    if size <= 2:
        return [varying[i : i + 1] for i in range(size)]
    similarity = normalized_mutual_information(x[:, varying])
    tree = linkage(1 - similarity[np.triu_indices(size, 1)], "average")
    subsets = [varying[i : i + 1] for i in range(size)]
    kept = np.ones(2 * size - 1, dtype=bool)
    for number, (left, right, distance, _) in enumerate(tree.tolist(), start=size):
        left, right = int(left), int(right)
        subsets.append(np.concatenate([subsets[left], subsets[right]]))
        kept[number] = distance < 1 - 1e-9 and number < 2 * size - 2
        if distance < 1e-9 and kept[number]:
            kept[[left, right]] = False
    return [subset for subset, keep in zip(subsets, kept, strict=True) if keep]


def normalized_mutual_information(x: np.ndarray) -> np.ndarray:
    """I(a; b) / H(a, b) of all pairs of variables, (n_var, n_var) in [0, 1]; 0 where I(a; b) may well be due to chance.

    :param x: genotypes (n, n_var), bool.
    """
    n = len(x)
    counts = np.arange(n + 1)
    # What an outcome that occurs so often adds to the entropy: counts are whole numbers, so one table serves all pairs.
    term = -counts / n * np.log(np.maximum(counts, 1) / n)
    ones = x.astype(np.float32)
    both = (ones.T @ ones).astype(np.int32)
    each = np.diag(both)
    first, second = each[:, None] - both, each[None] - both
    joint = (
        term[both] + (term[first] + term[second]) + term[n - both - first - second]
    )  # the same both ways, to the bit
    entropy = term[each] + term[n - each]
    mutual = np.maximum(entropy[:, None] + entropy[None] - joint, 0)
    mutual[2 * n * mutual < min(SIGNIFICANT, n * np.log(2))] = 0  # half a bit is enough in a small neighbourhood
    similarity = mutual / np.where(joint > 0, joint, 1)
    return np.where(similarity > 1 - 1e-9, 1.0, np.where(similarity < 1e-9, 0.0, similarity))
