"""The tables of the conformance kit, which the tests use as well."""

from bench.conformance.tables import (
    ToyClasses,
    ToyConstant,
    ToyImages,
    ToyOneFeature,
    ToySurvival,
    ToyTable,
)

__all__ = ["ToyClasses", "ToyConstant", "ToyImages", "ToyOneFeature", "ToySurvival", "ToyTable"]
