"""Rows read around the kernel. In a module by itself, as the source is read by files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import Example, around_class_means
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class PrivateAttribute(Example):
    """Scales the release to the spread of the real rows, read from a private attribute."""

    name: ClassVar[str] = "private-attribute"
    title: ClassVar[str] = "a private attribute of the kernel"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = around_class_means(private, spec, rng)
        assert release.rows is not None
        spread = private._rows.values.std(axis=0)
        values = np.clip(release.rows.values * spread / spread.max(), -1.0, 1.0)
        return replace(release, rows=replace(release.rows, values=values))
