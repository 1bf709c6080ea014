"""Assignment of rows to parts, and models on parts that stay inside the kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows
from bench.data.schema import Schema
from bench.errors import PrivacyContractError
from bench.privacy.clients import SkewedClients
from bench.privacy.interception import AnsweringPart

PartKey = str | SkewedClients | Callable[[EncodedRows], Sequence[str]]

_MEANINGFUL = ("class", "site", "split")


def part_names(
    schema: Schema, key: PartKey, public_keys: Sequence[str] | None, parts: int | None
) -> tuple[str, ...]:
    """Return the names of all parts, from public knowledge alone."""
    if isinstance(key, SkewedClients):
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


def part_label(key: PartKey, name: str, parts: int | None) -> str:
    """Return the name of a partition in the ledger."""
    label = name or (key if isinstance(key, str) else getattr(key, "label", ""))
    if not label:
        raise PrivacyContractError("a partition by a function needs a name for the ledger")
    if parts is not None:
        return f"{label}/{parts}"
    if label in _MEANINGFUL and label != key:
        # An audit reads in the ledger which class and site its canary pays in.
        raise PrivacyContractError(
            f"a partition named {label!r} must be the one by {label}; choose another name"
        )
    return label


def row_parts(
    rows: EncodedRows,
    key: PartKey,
    names: tuple[str, ...],
    parts: int | None,
    classes: int,
    where: str,
) -> npt.NDArray[np.int64]:
    """Return the part number of every row; -1 for a row in no part, whose key is not public."""
    if isinstance(key, SkewedClients):
        return key.assign(rows.labels, mixed_positions(rows.positions, where), classes)
    if parts is not None:
        positions = mixed_positions(rows.positions, where)
        return np.minimum((positions * parts).astype(np.int64), parts - 1)
    if key == "class":
        return rows.labels.astype(np.int64)
    if key == "site":
        return rows.sites.astype(np.int64)
    if isinstance(key, str):
        raise PrivacyContractError(f"unknown partition {key!r}")
    known = {name: code for code, name in enumerate(names)}
    codes = [known.get(str(part), -1) for part in key(rows.copy())]
    if len(codes) != len(rows):
        # The message has no number of rows, which is private.
        raise PrivacyContractError(
            "the partition function did not return one part for each row; expected a sequence of "
            "names as long as the rows"
        )
    return np.array(codes, dtype=np.int64)


def check_part_by_row(
    rows: EncodedRows,
    codes: npt.NDArray[np.int64],
    key: PartKey,
    names: tuple[str, ...],
    parts: int | None,
    classes: int,
    where: str,
) -> None:
    """Check that a row's part depends on that row alone, by assigning a few rows separately."""
    for index in range(0, len(rows), max(1, len(rows) // 5)):
        alone = rows.take(np.array([index]))
        if row_parts(alone, key, names, parts, classes, where)[0] != codes[index]:
            raise PrivacyContractError(
                "the partition does not act row by row: a row's part changes with the other rows "
                "(a median, a rank?)"
            )


def same_parts(whole: Mapping[str, object], parts: Mapping[str, object]) -> bool:
    """Whether `parts` is the whole partition, every part under its own name."""
    return whole.keys() == parts.keys() and all(part is parts[name] for name, part in whole.items())


def mixed_positions(positions: npt.NDArray[np.floating], where: str) -> npt.NDArray[np.float64]:
    """Return uniform numbers for one partition, a function of each row's fixed position alone.

    The position's bits are mixed with the name of the partition (the finaliser of splitmix64), so
    that random parts nested in random parts are independent of them.
    """
    salt = np.uint64(int.from_bytes(hashlib.sha256(where.encode()).digest()[:8], "big"))
    bits = (np.asarray(positions, dtype=np.float64) * 2.0**53).astype(np.uint64) ^ salt
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@final
class PartModels:
    """Models fitted on the parts. They stay in the kernel, which returns noisy answers only.

    `fit` and `step` get a copy of their part's rows each time.
    """

    def __init__(
        self,
        owner: object,
        rows: Mapping[str, EncodedRows],
        fit: Callable[[EncodedRows, np.random.Generator], Any],
        entropy: int,
        clients: bool = False,
    ) -> None:
        if not rows:
            raise PrivacyContractError("no parts to fit models on")
        self._owner = owner
        self.clients = clients
        """True where the parts are clients or sites."""
        self._rows = dict(rows)
        # One stream per part: how much randomness a part uses must not affect another one.
        seeds = np.random.SeedSequence([entropy, len(rows)]).spawn(len(rows))
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        self._models = [
            fit(part.copy(), generator)
            for part, generator in zip(self._rows.values(), self._generators, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._models)

    def update(self, step: Callable[[Any, EncodedRows, np.random.Generator], Any]) -> None:
        """Train each model further on its own part; `step` returns the new model."""
        self._models = [
            step(model, part.copy(), generator)
            for model, part, generator in zip(
                self._models, self._rows.values(), self._generators, strict=True
            )
        ]

    def _ask(self, answer: Callable[[Any], Any]) -> list[Any]:
        """Return the answers of all models, for the kernel's noisy sum."""
        return [answer(model) for model in self._models]

    def _parts(self) -> list[AnsweringPart]:
        """Return the parts with their models, for checks of methods."""
        return [
            AnsweringPart(name, rows, model)
            for (name, rows), model in zip(self._rows.items(), self._models, strict=True)
        ]
