"""QUAIL over smartnoise-synth 1.0.8: its claim is recorded, and not believed.

Rosenblatt et al. 2020: a share of epsilon trains a private classifier of the label, the rest a
private generator of the features; generated features are labelled by the classifier. As in the
GATS paper the generator is PATE-CTGAN; the classifier is diffprivlib's logistic regression. The
generator is not private in 1.0.8 (see `pate_ctgan`), QUAIL keeps all rows (`self.data`), and
reports the classifier's exact accuracy on rows it held back: the rows are charged as read without
noise.

Worked around:

* The library's split of 0.9 leaves the generator 0.1 of epsilon, below what its accountant states
  before the first step: `classifier_share` is 0.7.
* The classifier would get category codes as numbers: it is given the encoder's layout.
* diffprivlib measures `data_norm` on the rows unless told: it is the schema's bound.
* A fifth of the rows is held back for a report that nobody reads: `held_back` is 0.01.
* Features are drawn without real rows (see `_smartnoise`), and kept where the classifier's
  label is the class asked for. `torch.manual_seed(0)` is made to do nothing.
* Bounds and categories come from the schema, and the target is no feature of the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import (
    Between,
    Budget,
    Encoder,
    Environment,
    Floats,
    Integers,
    PrivateData,
    Release,
    Spec,
    seeded_global_generators,
    silenced_output,
)
from bench.methods._shared.smartnoise import SMARTNOISE, budget_of, library_errors
from bench.methods.pate._smartnoise import (
    TrainsPateCtgan,
    any_condition,
    encoded_table,
    from_network,
    generated,
    network_table,
    public_transformer,
    stratified,
)

REASON = (
    "smartnoise-synth 1.0.8's QUAIL trains its generator by PATE-CTGAN, which uses one network as "
    "the student and as all teachers, so that it is trained on the rows without noise; it also "
    "keeps the rows and reports an exact accuracy"
)


@final
@dataclass(frozen=True)
class Quail(TrainsPateCtgan):
    """Generated features with the labels of a private classifier."""

    name: ClassVar[str] = "quail"
    title: ClassVar[str] = "Private classifier labels generated features (QUAIL)"
    paper: ClassVar[str] = (
        "Rosenblatt et al., Differentially Private Synthetic Data: Applied Evaluations and "
        "Enhancements, 2020"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2011.05537"
    family: ClassVar[str] = "GAN"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    environment: ClassVar[Environment | None] = SMARTNOISE
    search: ClassVar[Mapping[str, Any]] = {
        "classifier_share": Between(0.3, 0.85),
        "regularization": Between(0.01, 10.0, log=True),
        "rows_per_teacher": (1000, 2000, 5000),
        "steps": Between(20, 300, log=True, whole=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"batch": 20, "steps": 5}

    classifier_share: float = 0.7
    """Share of epsilon for the classifier."""
    regularization: float = 1.0
    """C of the logistic regression."""
    held_back: float = 0.01

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        budget = budget_of(spec, "QUAIL")
        noise = self.vote_noise(budget, 1.0 - self.classifier_share)
        encoder = private.encoder
        rows = private.raw(REASON)
        with silenced_output(), library_errors("QUAIL"):
            import snsynth.pytorch.nn  # noqa: F401 - torch must be there when it is seeded

            with seeded_global_generators(rng):
                model = self._model(encoder, budget, noise, rng)
                model.fit(
                    network_table(rows, encoder),
                    transformer=public_transformer(encoder, with_label=False),
                )

                def draw(label: int, count: int) -> tuple[Floats, Integers]:
                    condition = any_condition(encoder, count, rng)
                    outputs = generated(model.private_synth, condition, rng)
                    values, _ = from_network(outputs, encoder)
                    predicted = model.private_model.named_steps["classifier"].predict(values)
                    return values, predicted.astype(np.int64)

                drawn = stratified(encoder, draw, spec.rows_per_class(private.counts), rng)
        return drawn.release(budget, "smartnoise-synth 1.0.8, QUAILSynthesizer", vote_noise=noise)

    def _model(
        self, encoder: Encoder, budget: Budget, noise: float, rng: np.random.Generator
    ) -> Any:
        from diffprivlib.models import LogisticRegression
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import FunctionTransformer
        from snsynth.quail import QUAILSynthesizer

        seed = int(rng.integers(2**31))

        def generator(epsilon: float) -> Any:
            return self.network(epsilon, budget.delta, noise)

        def classifier(epsilon: float) -> Any:
            encode = FunctionTransformer(encoded_table, kw_args={"encoder": encoder})
            logistic = LogisticRegression(
                epsilon=epsilon,
                data_norm=encoder.max_norm,
                C=self.regularization,
                random_state=seed,
                n_jobs=1,
            )
            return Pipeline([("encode", encode), ("classifier", logistic)])

        return QUAILSynthesizer(
            budget.epsilon,
            generator,
            classifier,
            encoder.schema.label.name,
            test_size=self.held_back,
            seed=seed,
            eps_split=self.classifier_share,
        )
