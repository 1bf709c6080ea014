"""Releases made by several clients: what was sent, how training went, and who is served worst.

Federated distillation paper, section 3.5: overall and per-client accuracy, precision, recall and
F1; communication (rounds and bytes) and speed of convergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    Federation,
    Integers,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Score,
    Scores,
    Task,
    TrainedInRounds,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import downstream_models
from bench.metrics._shared.auroc import auroc
from bench.metrics._shared.bootstrap import Array, Joint, Statistic, jointly
from bench.metrics.utility.groups import LEAST_ROWS, RowGroup, split

RELEASE, TRAINING = "release", "model"
"""Phases of messages: synthetic rows, and weights of a model."""

TOLERANCE = 0.005
"""Accuracy that a converged model may lose again."""

LAST_SHARE = 0.1
"""Share of the rounds, the last ones, whose mean accuracy is that of the trained model."""

_CLASSES = (Task.CLASSIFICATION, Task.IMAGE)


def federation(evaluation: Evaluation) -> Federation:
    """The clients of the release, or the reason why there are none."""
    clients = evaluation.release.federation
    if clients is None:
        raise NotComputable("the method does not work with several clients: nothing is sent")
    return clients


# Communication -----------------------------------------------------------------------------------


@final
class Communication(Metric):
    """Bytes between the clients and the server."""

    name: ClassVar[str] = "federated-communication"
    family: ClassVar[Family] = Family.COST
    definition: ClassVar[str] = (
        "Bytes sent between clients and server in both directions (federated distillation paper, "
        "table 4), counted from the payloads that were made: 4 bytes per weight or number, 1 or 2 "
        "per category, no compression. The table `federated-transfers` has every phase, round and "
        "direction."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("federated/bytes", Direction.LOWER, "All bytes that were sent.", shown=True),
        Output(
            "federated/bytes-release", Direction.LOWER, "Bytes of synthetic rows, from the clients."
        ),
        Output("federated/bytes-training", Direction.LOWER, "Bytes of weights, up and down."),
    )
    cost: ClassVar[str] = "nothing"

    def compute(self, evaluation: Evaluation) -> Scores:
        transfers = federation(evaluation).transfers

        def total(*phases: str) -> float:
            chosen = (item for item in transfers if not phases or item.phase in phases)
            return float(sum(item.bytes for item in chosen))

        scores = (
            self.score("federated/bytes", total()),
            self.score("federated/bytes-release", total(RELEASE)),
            self.score("federated/bytes-training", total(TRAINING)),
        )
        columns = ["phase", "round", "direction", "messages", "bytes"]
        table = pd.DataFrame([vars(item) for item in transfers], columns=columns)
        return Scores(scores, {"federated-transfers": table})


# Rounds ------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RoundHistory:
    """Real test rows that the model got right after each round, and what had been sent by then."""

    right: npt.NDArray[np.bool_]
    """(rounds + 1, test rows)."""
    auroc: Array
    """NaN with more than two classes, or a class without test rows."""
    sent: npt.NDArray[np.int64]
    """Bytes up to and including the round; phases without rounds come before the first."""

    @property
    def accuracy(self) -> Array:
        """Accuracy after each round."""
        return np.asarray(self.right.mean(axis=1))


def rounds(evaluation: Evaluation) -> RoundHistory:
    """Every state of the released model, scored once for all metrics."""
    sent, model = federation(evaluation).transfers, evaluation.predictor
    if not isinstance(model, TrainedInRounds):
        raise NotComputable("the release was not trained in rounds")

    def build() -> RoundHistory:
        features, labels = downstream_models.real_test_features(evaluation), _labels(evaluation)
        classes = len(evaluation.dataset.schema.classes)
        right, areas = [], []
        for number in range(model.rounds + 1):
            answers = downstream_models.class_scores(model.after(number), features, classes)
            right.append(answers.argmax(axis=1) == labels)
            areas.append(_auroc(labels, answers))
        numbers = range(model.rounds + 1)
        total = [sum(item.bytes for item in sent if item.round <= number) for number in numbers]
        return RoundHistory(np.stack(right), np.array(areas), np.array(total, dtype=np.int64))

    return evaluation.shared("federated/rounds", build)


def converged(accuracy: Array) -> int:
    """First round from which the accuracy stays where training ended up.

    With a = mean accuracy after the last tenth of the rounds (at least one): the smallest r such
    that after round r and every later one it is at least a - 0.005. 0 is the start.
    """
    last = max(1, math.ceil(LAST_SHARE * (len(accuracy) - 1)))
    # A model as good as that to the row must count, whatever the last digit of a difference.
    below = np.flatnonzero(accuracy < accuracy[-last:].mean() - TOLERANCE - 1e-12)
    first = int(below[-1]) + 1 if len(below) else 0
    if first == len(accuracy):
        raise NotComputable(
            "training has not converged: after the last round the accuracy is more than "
            f"{TOLERANCE} below its mean over the last tenth of the rounds"
        )
    return first


@final
class RoundAccuracy(Metric):
    """Where training started, and where it ended."""

    name: ClassVar[str] = "federated-rounds"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Share of real test rows that the released model classifies right (largest probability) "
        "before the first round of federated averaging and after the last. Interval: 1000 "
        "bootstrap resamples of the test rows within each class. The table `federated-rounds` has "
        "accuracy, AUROC (two classes) and all bytes sent so far after each round."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "federated/accuracy-start",
            Direction.HIGHER,
            "After pre-training (federated distillation paper, equation 6), or of random weights.",
        ),
        Output(
            "federated/accuracy-final",
            Direction.HIGHER,
            "After the last round of training.",
            shown=True,
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = _CLASSES

    def compute(self, evaluation: Evaluation) -> Scores:
        history = rounds(evaluation)
        scores = []
        for output, right in zip(self.outputs, (history.right[0], history.right[-1]), strict=True):
            rng = evaluation.generator("bootstrap/federated-rounds")
            estimate = _bootstrap.bootstrap(_bootstrap.mean(right), _labels(evaluation), rng)
            scores.append(estimate.score(self, output.name))
        table = pd.DataFrame(
            {
                "round": np.arange(len(history.sent)),
                "accuracy": history.accuracy,
                "auroc": history.auroc,
                "bytes": history.sent,
            }
        )
        return Scores(tuple(scores), {"federated-rounds": table})


@final
class Convergence(Metric):
    """How long training took."""

    name: ClassVar[str] = "federated-convergence"
    family: ClassVar[Family] = Family.COST
    definition: ClassVar[str] = (
        "Rounds to converge (federated distillation paper, table 5, which does not define them): "
        "the first round after which the accuracy on the real test rows is never again more than "
        f"{TOLERANCE} below its mean over the last tenth of the rounds; 0 if the start is as good. "
        "Absent if the last round itself is below. Judged by the evaluator after training: "
        "nothing was stopped by it."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("federated/rounds", Direction.LOWER, "", shown=True),
        Output(
            "federated/bytes-to-converge",
            Direction.LOWER,
            "Bytes sent up to and including that round (`federated/rounds`), synthetic rows "
            "included.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = _CLASSES

    def compute(self, evaluation: Evaluation) -> Scores:
        history = rounds(evaluation)
        if len(history.right) == 1:
            raise NotComputable("there were no rounds: the model is the pre-trained one")
        first = converged(history.accuracy)
        return Scores(
            (
                self.score("federated/rounds", float(first)),
                self.score("federated/bytes-to-converge", float(history.sent[first])),
            )
        )


# Clients -----------------------------------------------------------------------------------------

_MODEL = "of XGBoost trained on the released rows (class weighting), or of the released model"
_MACRO = "mean over the classes that the test rows hold; a class never predicted counts 0"


@final
class ClientScores(Metric):
    """Whom the release serves, and whom it does not."""

    name: ClassVar[str] = "federated-clients"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Accuracy, precision, recall and F1 over all real test rows and at each client (federated "
        f"distillation paper, section 3.5) {_MODEL}. A test row lies with the client that a "
        f"training row like it would be cut to. Clients under {LEAST_ROWS} test rows are listed in "
        "the table `federated-clients`, not scored. Interval: 1000 bootstrap resamples of the test "
        "rows within each client and class."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("federated/client-mean", Direction.HIGHER, "Mean accuracy over the scored clients."),
        Output(
            "federated/client-worst",
            Direction.HIGHER,
            "Accuracy at the worst client; interval simultaneous over the clients.",
            shown=True,
        ),
        Output(
            "federated/client-spread",
            Direction.LOWER,
            "Standard deviation of the accuracy over the clients. The interval is not corrected "
            "for the spread that resampling adds.",
        ),
        Output("federated/precision", Direction.HIGHER, f"Over all test rows, {_MACRO}."),
        Output("federated/recall", Direction.HIGHER, f"Over all test rows, {_MACRO}."),
        Output("federated/f1", Direction.HIGHER, f"Over all test rows, {_MACRO}."),
    )
    tasks: ClassVar[tuple[Task, ...]] = _CLASSES

    def compute(self, evaluation: Evaluation) -> Scores:
        clients, schema = federation(evaluation).clients, evaluation.dataset.schema
        features, labels = downstream_models.real_test_features(evaluation), _labels(evaluation)
        model: ReleasedModel = downstream_models.tree_classifier(evaluation)
        decided = downstream_models.class_scores(model, features, len(schema.classes)).argmax(
            axis=1
        )
        codes = clients.of_rows(evaluation.dataset.test.rows, schema)
        groups = [*split("client", codes, clients.names(schema))]
        scored = [group for group in groups if len(group.rows) >= LEAST_ROWS]
        everything = RowGroup("client", "all", np.arange(len(labels)))
        parts = [
            (group.rows, statistic)
            for group in (everything, *scored)
            for statistic in macro_scores(labels[group.rows], decided[group.rows])
        ]
        joint = jointly(
            lambda weights: np.stack([part(weights[rows]) for rows, part in parts]),
            labels + len(schema.classes) * (codes + 1),
            evaluation.generator("bootstrap/federated-clients"),
        )
        small = [group for group in groups if len(group.rows) < LEAST_ROWS]
        table = _client_table([everything, *scored], joint, small)
        return Scores(self._scores(joint), {"federated-clients": table})

    def _scores(self, joint: Joint) -> tuple[Score, ...]:
        names = ("federated/precision", "federated/recall", "federated/f1")
        overall = [*joint.take(range(1, len(_NAMES))).each()]
        all_rows = [
            estimate.score(self, name) for name, estimate in zip(names, overall, strict=True)
        ]
        places = range(len(_NAMES), len(joint.values), len(_NAMES))
        if not places:
            reason = f"no client has the {LEAST_ROWS} test rows that a score needs"
            by_client = [self.absent(output.name, reason) for output in self.outputs[:3]]
            return (*by_client, *all_rows)
        accuracies = joint.take(places)
        low, high = accuracies.lowest_interval()
        return (
            accuracies.estimate(lambda values: values.mean(axis=0)).score(
                self, "federated/client-mean"
            ),
            self.score("federated/client-worst", float(accuracies.values.min()), low, high),
            accuracies.estimate(lambda values: values.std(axis=0)).score(
                self, "federated/client-spread"
            ),
            *all_rows,
        )


_NAMES = ("accuracy", "precision", "recall", "f1")


def macro_scores(labels: Integers, decided: Integers) -> tuple[Statistic, ...]:
    """Accuracy, and macro precision, recall and F1 over the classes among the labels.

    As scikit-learn with `labels=unique(labels), zero_division=0`, on weighted rows. A resample
    within classes keeps every class.
    """
    present = np.unique(labels)
    truth = labels[:, None] == present
    chosen = decided[:, None] == present

    def shares(above: npt.NDArray[np.bool_], below: npt.NDArray[np.integer]) -> Statistic:
        top, bottom = above.astype(np.float64), below.astype(np.float64)

        def statistic(weights: Array) -> Array:
            sums = bottom.T @ weights
            ratio = np.divide(top.T @ weights, sums, out=np.zeros_like(sums), where=sums > 0)
            return np.asarray(ratio.mean(axis=0))

        return statistic

    both = truth & chosen
    as_number = truth.astype(np.int64)
    f1 = shares(both, as_number + chosen)
    return (
        _bootstrap.mean(labels == decided),
        shares(both, chosen.astype(np.int64)),
        shares(both, as_number),
        lambda weights: 2.0 * f1(weights),
    )


def _client_table(scored: list[RowGroup], joint: Joint, small: list[RowGroup]) -> pd.DataFrame:
    """One row for all test rows and one per client; intervals of the accuracy."""
    rows = []
    for place, group in enumerate(scored):
        start = len(_NAMES) * place
        values = joint.values[start : start + len(_NAMES)]
        (accuracy,) = joint.take([start]).each()
        rows.append((group.name, len(group.rows), *values, *accuracy.interval, ""))
    for group in small:
        reason = f"{len(group.rows)} test rows, at least {LEAST_ROWS} are needed"
        rows.append((group.name, len(group.rows), *(math.nan,) * (len(_NAMES) + 2), reason))
    columns = ["client", "rows", *_NAMES, "accuracy-low", "accuracy-high", "reason"]
    return pd.DataFrame(rows, columns=columns)


def _labels(evaluation: Evaluation) -> Integers:
    return evaluation.dataset.test.rows.labels


def _auroc(labels: Integers, answers: Array) -> float:
    if answers.shape[1] != 2 or len(np.unique(labels)) < 2:
        return math.nan
    return float(auroc(labels, answers[:, 1])(np.ones((len(labels), 1)))[0])
