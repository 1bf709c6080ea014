"""The tables of the conformance kit, which the tests use as well."""

from bench.conformance.tables import (
    ToyClasses,
    ToyConstant,
    ToyGaps,
    ToyImages,
    ToyOneFeature,
    ToySurvival,
    ToyTable,
)

__all__ = [
    "ToyClasses",
    "ToyConstant",
    "ToyGaps",
    "ToyImages",
    "ToyOneFeature",
    "ToySurvival",
    "ToyTable",
]
