"""Metrics whose declarations cannot be used."""

from __future__ import annotations

from typing import Any

from bench.plugins.metric import Direction, Evaluation, Family, Metric, Output, RefitMetric, Scores

no_class = 7


class _Declared(Metric):
    """A metric that declares all that it must."""

    family = Family.FIDELITY
    definition = "A number that nobody computes."

    def compute(self, evaluation: Evaluation) -> Scores:
        raise NotImplementedError


class Another(_Declared):
    name = "another"


class Abstract(Metric):
    name = "abstract"
    family = Family.FIDELITY
    definition = "A number that nobody computes."


class NoFamily(_Declared):
    name = "no-family"
    family: Any = "fidelity"


class BadTasks(_Declared):
    name = "bad-tasks"
    tasks: Any = ("classification",)


class BadOutputs(_Declared):
    name = "bad-outputs"
    outputs: Any = "ab"


class Doubled(_Declared):
    name = "doubled"
    outputs = (Output("doubled/a", Direction.LOWER), Output("doubled/a", Direction.LOWER))


class Taken(_Declared):
    name = "taken"
    outputs = (Output("ks", Direction.LOWER),)


class Ks(_Declared):
    name = "ks"


class Good(RefitMetric):
    name = "good"
    family = Family.PRIVACY
    definition = "A number that nobody computes."

    def compute(self, evaluation: Evaluation, refit: object) -> Scores:
        raise NotImplementedError
