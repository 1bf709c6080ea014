"""The kit's own test set: methods with one honest mistake each, whose ledgers prove an epsilon.

What enters is a mistake that an author could make without noticing, as a small method whose
docstring says what is wrong, in the module of its topic; what leaves is `MISTAKES`, which
`bench check --self-test` checks, and `SOUND`, the methods that the mistakes are made in. None of
them is registered: no run can use them.
"""

from __future__ import annotations

from bench.conformance.mistakes.choices import (
    BestOfSeveral,
    BestOnValidation,
    EarlyStopping,
    RefusesRows,
    UntilEnoughRows,
)
from bench.conformance.mistakes.counts import (
    ClipFromRows,
    DeltaFromCount,
    DividedByCount,
    DividedBySample,
    TeachersFromCount,
    WeightsFromCounts,
)
from bench.conformance.mistakes.global_generator import GlobalGenerator
from bench.conformance.mistakes.noise import FixedNoise
from bench.conformance.mistakes.outputs import (
    BoundsFromRows,
    KeptRows,
    RowsInNotes,
    SoftLabelsFromRows,
)
from bench.conformance.mistakes.private_attribute import PrivateAttribute
from bench.conformance.mistakes.row_functions import (
    BatchNormalised,
    CachedFeatures,
    FittedScaler,
    FoldsByOrder,
    RunningMean,
)
from bench.conformance.mistakes.sound import ClassMeans, Regression, Teachers
from bench.conformance.mistakes.teachers import SharedTeachers
from bench.plugins.method import Method

SOUND: tuple[type[Method], ...] = (ClassMeans, Regression, Teachers)

MISTAKES: tuple[type[Method], ...] = (
    FittedScaler,
    BatchNormalised,
    CachedFeatures,
    RunningMean,
    FoldsByOrder,
    SharedTeachers,
    DividedBySample,
    DividedByCount,
    WeightsFromCounts,
    DeltaFromCount,
    TeachersFromCount,
    ClipFromRows,
    EarlyStopping,
    UntilEnoughRows,
    BestOnValidation,
    BestOfSeveral,
    RefusesRows,
    SoftLabelsFromRows,
    RowsInNotes,
    KeptRows,
    BoundsFromRows,
    PrivateAttribute,
    GlobalGenerator,
    FixedNoise,
)
