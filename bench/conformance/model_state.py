"""A digest of what a model holds, to see whether two models of one part are the same.

Answers alone do not show it: a vote is the same for many models, and would be another for the next
table.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_ATOMS = (type(None), bool, int, float, complex, str, bytes, np.generic)


def state_digest(model: object) -> str:
    """Return a hash of all numbers and texts that are reachable from a model.

    Arrays, tensors, containers, generators and attributes of objects are followed. What a library
    keeps outside Python (a booster, a file) and variables captured by functions are not seen.
    """
    digest = hashlib.sha256()
    for piece in _pieces(model, {}):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    if isinstance(value, _ATOMS):
        yield f"{type(value).__name__}:{value!r};".encode()
        return
    yield f"{type(value).__qualname__}(".encode()
    if id(value) not in seen:
        # The object is kept alive, so that no other one can get its id.
        seen[id(value)] = value
        yield from _inside(value, seen)
    yield b")"


def _inside(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, np.random.Generator):
        yield from _pieces(value.bit_generator.state, seen)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _pieces(key, seen)
            yield from _pieces(item, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_pieces(item, seen)) for item in value)
    elif isinstance(value, list | tuple | np.ndarray):
        for item in value:
            yield from _pieces(item, seen)
    elif not isinstance(value, _CODE):
        yield from _pieces(getattr(value, "__dict__", None), seen)
