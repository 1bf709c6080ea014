"""Counts that are public by declaration, or paid for under `--private-counts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from bench.errors import PrivacyContractError


@final
@dataclass(frozen=True)
class Counts:
    """Numbers of training rows that everybody is assumed to know.

    Constants of the dataset's file, the same for both neighbours and both worlds of an audit:
    the guarantee is conditional on them. `by_class` follows the schema's class order.
    """

    total: int
    by_class: tuple[int, ...]
    by_site: Mapping[str, int] = field(default_factory=dict)
    by_site_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    paid: bool = False
    """True when the counts were bought with noise instead of declared."""

    def part(self, key: str, name: str, classes: tuple[str, ...], parts: int) -> Counts:
        """Counts of one part: exact for classes and sites, an even share for random parts."""
        none = tuple(0 for _ in self.by_class)
        if key == "class":
            code = classes.index(name)
            only = self.by_class[code]
            return Counts(only, (*none[:code], only, *none[code + 1 :]), paid=self.paid)
        if key == "site":
            if name not in self.by_site:
                raise PrivacyContractError(
                    f"the dataset declares no count for site {name!r}; declare it in its file"
                )
            return Counts(self.by_site[name], self.by_site_class.get(name, none), paid=self.paid)
        share = [max(1, round(count / parts)) for count in self.by_class]
        return Counts(max(1, round(self.total / parts)), tuple(share), paid=self.paid)
