"""PrivBayes of the PyPI package dpmm, wrapped: fitted on a data frame, its claim recorded."""

from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import Categorical, DataFrameMethod, Environment, FitRequest, Sampler


@final
@dataclass(frozen=True)
class DpmmPrivBayes(DataFrameMethod):
    """Bayesian network of noisy marginals, as dpmm implements it."""

    name: ClassVar[str] = "dpmm-priv-bayes"
    title: ClassVar[str] = "PrivBayes of the package dpmm"
    paper: ClassVar[str] = "Mahiou et al., dpmm: Differentially Private Marginal Models, 2025"
    package: ClassVar[str] = "dpmm"
    environment: ClassVar[Environment] = Environment("dpmm", ("dpmm==0.1.9",), ("dpmm.pipelines",))

    def fit(self, frame: pd.DataFrame, request: FitRequest) -> Sampler:
        from dpmm.pipelines import PrivBayesPipeline

        domain = {
            column.name: {"categories": list(column.categories)}
            if isinstance(column, Categorical)
            else {"lower": column.low, "upper": column.high}
            for column in request.schema
            if column.name in frame
        }
        # Bins from the public bounds: its default spends a further epsilon of 0.1 on them.
        settings = {"proc_epsilon": None, "n_bins": 8, "n_jobs": 1}
        model = PrivBayesPipeline(request.epsilon, request.delta, **settings)
        model.fit(frame, domain, random_state=request.seed)
        return lambda rows: model.generate(rows)
