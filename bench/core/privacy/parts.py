"""How rows are assigned to parts, and models that live inside the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.core.encode import EncodedRows
from bench.core.errors import PrivacyContractError
from bench.core.privacy.clients import Clients
from bench.core.schema import Schema

PartKey = str | Clients | Callable[[EncodedRows], Sequence[str]]


def part_names(
    schema: Schema, key: PartKey, public_keys: Sequence[str] | None, parts: int | None
) -> tuple[str, ...]:
    """Names of all parts, from public knowledge alone."""
    if isinstance(key, Clients):
        return key.names
    if parts is not None:
        if not isinstance(key, str) or parts < 1:
            raise PrivacyContractError("random parts need a name and a positive number of parts")
        return tuple(str(number) for number in range(parts))
    if key == "class":
        return schema.classes
    if key == "site":
        if schema.site is None:
            raise PrivacyContractError("the schema declares no site column to partition by")
        return schema.site.categories
    if isinstance(key, str):
        raise PrivacyContractError(
            f"unknown partition {key!r}; use 'class', 'site', a name with parts=k, or a function "
            "with its public keys"
        )
    if not public_keys:
        raise PrivacyContractError("a partition by a function needs its public keys")
    return tuple(public_keys)


def row_parts(
    rows: EncodedRows, key: PartKey, names: tuple[str, ...], parts: int | None, classes: int = 0
) -> npt.NDArray[np.int64]:
    """Part number of every row; -1 for a row whose key is not public: it lies in no part."""
    if isinstance(key, Clients):
        return key.assign(rows, classes)
    if parts is not None:
        # The position is the Dataset's, drawn for each row before neighbours are defined.
        return np.minimum((rows.positions * parts).astype(np.int64), parts - 1)
    if key == "class":
        return rows.labels.astype(np.int64)
    if key == "site":
        return rows.sites.astype(np.int64)
    if isinstance(key, str):
        raise PrivacyContractError(f"unknown partition {key!r}")
    known = {name: code for code, name in enumerate(names)}
    return np.array([known.get(str(part), -1) for part in key(rows)], dtype=np.int64)


@final
class PartModels:
    """Models fitted on the parts. They stay inside; only noisy sums of their answers come out."""

    def __init__(self, fitted: Mapping[str, tuple[EncodedRows, Any]]) -> None:
        if not fitted:
            raise PrivacyContractError("no parts to fit models on")
        self._fitted = dict(fitted)

    def __len__(self) -> int:
        return len(self._fitted)

    def update(self, step: Callable[[Any, EncodedRows], Any]) -> None:
        """Train each model further on its own part; `step` gives the new model."""
        self._fitted = {
            name: (rows, step(model, rows)) for name, (rows, model) in self._fitted.items()
        }

    def ask(self, answer: Callable[[Any], Any]) -> list[Any]:
        """Answers of all models: for the kernel's noisy sum."""
        return [answer(model) for _, model in self._fitted.values()]
