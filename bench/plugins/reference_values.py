"""References taken apart into JSON and arrays, and put together again.

What a reference may hold to be stored: numbers, texts, None, arrays of numbers or texts, boosters
of XGBoost (in their own binary format), and tuples, lists, dictionaries and dataclasses of these.
Anything else, a model of scikit-learn for instance, cannot be taken apart: it stays in the process
that built it.

Nothing is pickled. A dataclass is found by its name among the modules that are imported already;
reading imports nothing, and calls nothing but a dataclass with its fields.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]

_KINDS = "biufcU"
"""Kinds of arrays that are bytes alone: numbers and texts."""

_DEEPEST = 20
"""Levels of values within each other."""


@final
@dataclass(frozen=True)
class Parts:
    """A value without its arrays, as JSON can hold it, and the arrays that it refers to."""

    tree: Any
    arrays: tuple[AnyArray, ...]

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


class _Unstorable(Exception):
    """A value that cannot be taken apart."""


def taken_apart(value: object) -> Parts | None:
    """Return the parts of a value; None where something in it is neither array nor plain."""
    arrays: list[AnyArray] = []
    try:
        return Parts(_tree(value, arrays, 0), tuple(arrays))
    except _Unstorable:
        return None


def put_together(parts: Parts) -> Any:
    """Return a value equal to the one that was taken apart.

    Raises ValueError where the parts are not those of any value.
    """
    try:
        return _value(parts.tree, parts.arrays, 0)
    except (AttributeError, IndexError, KeyError, TypeError) as problem:
        raise ValueError(f"not the parts of a value: {type(problem).__name__}") from None


def _tree(value: object, arrays: list[AnyArray], depth: int) -> list[Any]:
    if depth > _DEEPEST:
        raise _Unstorable
    if value is None or type(value) in (bool, int, float, str):
        return ["plain", value]
    if isinstance(value, np.ndarray):
        return _stored("array", value, arrays)
    if isinstance(value, np.generic):
        return _stored("scalar", np.asarray(value), arrays)
    if type(value) is tuple or type(value) is list:
        return [type(value).__name__, [_tree(item, arrays, depth + 1) for item in value]]
    if type(value) is dict:
        items = (
            (_tree(k, arrays, depth + 1), _tree(v, arrays, depth + 1)) for k, v in value.items()
        )
        return ["dict", [list(item) for item in items]]
    if _is_booster(value):
        booster: Any = value
        return _stored("booster", np.frombuffer(booster.save_raw("ubj"), np.uint8), arrays)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        fields = dataclasses.fields(value)
        if _imported(kind.__module__, kind.__qualname__) is not kind:
            raise _Unstorable  # defined inside a function
        if not all(field.init for field in fields):
            raise _Unstorable
        inside = {f.name: _tree(getattr(value, f.name), arrays, depth + 1) for f in fields}
        return ["dataclass", kind.__module__, kind.__qualname__, inside]
    raise _Unstorable


def _stored(name: str, array: AnyArray, arrays: list[AnyArray]) -> list[Any]:
    if array.dtype.kind not in _KINDS or type(array) is not np.ndarray:
        raise _Unstorable
    # In one of the two orders that a file keeps: sums over memory in another order round otherwise.
    ordered = array.flags.c_contiguous or array.flags.f_contiguous
    arrays.append(array if ordered else np.ascontiguousarray(array))
    return [name, len(arrays) - 1]


def _value(tree: Any, arrays: tuple[AnyArray, ...], depth: int) -> Any:
    kind, content, *more = tree
    if depth > _DEEPEST:
        raise ValueError("values lie deeper in each other than in any reference")
    if kind == "plain":
        return content
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind in ("tuple", "list"):
        items = [_value(item, arrays, depth + 1) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {_value(k, arrays, depth + 1): _value(v, arrays, depth + 1) for k, v in content}
    if kind == "booster":
        return _booster(arrays[content])
    if kind == "dataclass":
        found = _imported(content, more[0])
        if not isinstance(found, type) or not dataclasses.is_dataclass(found):
            raise ValueError("names no dataclass that is imported")
        return found(**{k: _value(v, arrays, depth + 1) for k, v in more[1].items()})
    raise ValueError("of an unknown kind")


def _imported(module: str, name: str) -> object:
    """What has this name in a module that is imported already; None where nothing has."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _is_booster(value: object) -> bool:
    """Return True for a booster; XGBoost is not imported for the question."""
    kind = getattr(sys.modules.get("xgboost"), "Booster", None)
    return kind is not None and type(value) is kind


def _booster(content: AnyArray) -> object:
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(content.tobytes()))
    # Parameters of the training are not stored. Answers are the same for any number of threads.
    booster.set_param({"nthread": 1})
    return booster
