"""Rules of a schema that speak about features alone, asked of rows that have nothing else yet.

Rows of a pool are drawn before their labels, status or time: rules about these cannot be asked of
them. Rows are judged as they will be read: in single precision, and decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Encoder, Rule

Mask = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True)
class FeatureRules:
    """The rules, each with the columns that it reads."""

    encoder: Encoder
    rules: tuple[tuple[frozenset[str], Rule], ...]

    @classmethod
    def of(cls, encoder: Encoder) -> FeatureRules:
        """Of the schema."""
        features = {column.name for column in encoder.schema.features}
        read = [(_columns(encoder, rule), rule) for rule in encoder.schema.rules]
        return cls(encoder, tuple((names, rule) for names, rule in read if names <= features))

    @property
    def columns(self) -> frozenset[str]:
        """All that any rule reads."""
        return frozenset().union(*(names for names, _ in self.rules))

    def each(self, values: npt.NDArray[np.float64]) -> Sequence[tuple[frozenset[str], Mask]]:
        """Of every rule: its columns, and which rows break it. Values may lack other columns."""
        if not self.rules:
            return ()
        encoder = self.encoder
        whole = np.zeros((len(values), encoder.width), dtype=np.float32)
        whole[:, : encoder.feature_width] = values[:, : encoder.feature_width]
        frame = encoder.decode(whole, np.zeros(len(values), dtype=np.int64))
        return [(names, np.asarray(rule.broken(frame), dtype=bool)) for names, rule in self.rules]

    def broken(self, values: npt.NDArray[np.float64]) -> Mask:
        """True for rows that break one of them."""
        found = [mask for _, mask in self.each(values)]
        return np.asarray(np.logical_or.reduce([np.zeros(len(values), dtype=bool), *found]))


def _columns(encoder: Encoder, rule: Rule) -> frozenset[str]:
    """Declared columns that a rule reads; its other sides are constants."""
    declared = {column.name for column in encoder.schema}
    sides = {side for part in (rule.then, *rule.when) for side in (part.left, part.right)}
    return frozenset(sides & declared)
