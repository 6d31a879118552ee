"""Digests: names of contents do not change from version to version, for journals and caches hold them."""

import hashlib

import numpy as np
import torch

from pymoo_stitch.network import raw
from pymoo_stitch.util.digests import digest, digest_arrays, heading


def test_parts_are_hashed_one_after_another():
    expected = hashlib.blake2b("naïve".encode() + b"\0\1" + bytes([2, 0]), digest_size=16).hexdigest()
    assert digest(["naïve", b"\0\1", np.array([2], dtype="<u2")]) == expected
    assert len(digest(["a"], size=8)) == 16
    assert len({digest(["a"]), digest(["b"]), digest(["a"], key=b"k"), digest(["a"], size=8)}) == 4


def test_arrays_are_told_apart_by_name_type_shape_and_values():
    a = np.arange(6, dtype=np.float32)
    others = [{"a": a}, {"b": a}, {"a": a.astype(float)}, {"a": a.reshape(2, 3)}, {"a": -a}, {"a": a, "b": a}]
    assert len({digest_arrays(arrays) for arrays in others}) == len(others)
    assert digest_arrays({"a": a, "b": -a}) == digest_arrays({"b": -a, "a": a[::1].copy()})
    grid = np.arange(6).reshape(2, 3)
    assert digest_arrays({"a": grid.T}) == digest_arrays({"a": np.ascontiguousarray(grid.T)})


def test_tensors_of_any_type_have_bytes():
    for kind in (torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.int64):
        tensor = torch.tensor([[1, 0], [1, 1]]).to(kind)
        assert raw(tensor).nbytes == tensor.nbytes
        assert (raw(tensor.T) == raw(tensor.T.contiguous())).all()
    assert heading("x", torch.zeros(2, 3)) == "x torch.float32 (2, 3)\n"
