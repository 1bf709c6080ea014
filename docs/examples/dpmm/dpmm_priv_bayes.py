"""PrivBayes and AIM of the PyPI package dpmm, wrapped: fitted on a data frame, claims recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pandas as pd

from bench import Categorical, DataFrameMethod, Environment, FitRequest, Sampler


@dataclass(frozen=True)
class Dpmm(DataFrameMethod):
    """A pipeline of dpmm on the public bounds and categories."""

    paper: ClassVar[str] = "Mahiou et al., dpmm: Differentially Private Marginal Models, 2025"
    package: ClassVar[str] = "dpmm"
    environment: ClassVar[Environment] = Environment("dpmm", ("dpmm==0.1.9",), ("dpmm.pipelines",))
    pipeline: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]

    def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
        from dpmm import pipelines

        domain = {
            column.name: {"categories": list(column.categories)}
            if isinstance(column, Categorical)
            else {"lower": column.low, "upper": column.high}
            for column in request.schema
            if column.name in frame
        }
        # Bins from the public bounds: its default spends a further epsilon of 0.1 on them.
        settings = {"proc_epsilon": None, "n_jobs": 1, **self.settings}
        model = getattr(pipelines, self.pipeline)(request.epsilon, request.delta, **settings)
        model.fit(frame, domain, random_state=request.seed)
        return lambda rows: model.generate(rows)


@final
@dataclass(frozen=True)
class DpmmPrivBayes(Dpmm):
    """Bayesian network of noisy marginals, as dpmm implements it."""

    name: ClassVar[str] = "dpmm-priv-bayes"
    title: ClassVar[str] = "PrivBayes of the package dpmm"
    pipeline: ClassVar[str] = "PrivBayesPipeline"
    settings: ClassVar[Mapping[str, Any]] = {"n_bins": 8}


@final
@dataclass(frozen=True)
class DpmmAim(Dpmm):
    """Adaptively chosen marginals, as dpmm implements AIM; models of at most 1.5 MB (80 there)."""

    name: ClassVar[str] = "dpmm-aim"
    title: ClassVar[str] = "AIM of the package dpmm"
    pipeline: ClassVar[str] = "AIMPipeline"
    settings: ClassVar[Mapping[str, Any]] = {"n_bins": 16, "max_model_size": 1.5}
