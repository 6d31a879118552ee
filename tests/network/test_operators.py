"""The allow-list: every name is an operator of torch, and none has an effect beyond its result."""

import pytest
import torch

from pymoo_stitch.network import FRESH, IN_PLACE, OPERATORS, lookup, lookup_in_place
from pymoo_stitch.network.operators import GETITEM


@pytest.mark.parametrize("op", sorted(OPERATORS - {GETITEM}))
def test_every_allowed_operator_exists_and_is_pure(op):
    schema = lookup(op)._schema
    assert not schema.is_mutable
    random = torch.Tag.nondeterministic_seeded in lookup(op).tags
    assert not random or "dropout" in op or any(argument.name == "dropout_p" for argument in schema.arguments)
    assert not any(str(argument.type) == "Generator" for argument in schema.arguments)
    assert "file" not in op


def test_operators_that_may_overwrite_have_a_form_that_does():
    for op in IN_PLACE:
        assert lookup_in_place(op)._schema.is_mutable
    assert FRESH | IN_PLACE <= OPERATORS


@pytest.mark.parametrize(
    "op", ["aten.from_file.default", "aten.rand.default", "aten.relu_.default", "builtins.eval", ""]
)
def test_no_other_operator_is_looked_up(op):
    with pytest.raises(ValueError, match="is not among those a graph may use"):
        lookup(op)
