"""What clients sent, how their training went, and how each of them is served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support, roc_auc_score

from bench.data.dataset import Dataset
from bench.datasets.simulators.curial_sim import CurialSim
from bench.errors import NotComputable
from bench.metrics.federated import federated
from bench.metrics.federated.federated import (
    ClientScores,
    Communication,
    Convergence,
    RoundAccuracy,
)
from bench.plugins.release import (
    Clients,
    Federation,
    Release,
    ReleasedModel,
    Rows,
    TrainedInRounds,
    Transfer,
)
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.tables import ToyTable

CLIENTS = Clients.of("clients", 5, 0.5)
TRANSFERS = (
    Transfer("release", 0, "up", 5, 1000),
    Transfer("model", 1, "down", 5, 40),
    Transfer("model", 1, "up", 5, 60),
    Transfer("model", 2, "down", 5, 40),
    Transfer("model", 2, "up", 5, 60),
    Transfer("anomaly statistics", 0, "up", 5, 7),
)
_MARKER = 1


@final
@dataclass(frozen=True)
class States(TrainedInRounds):
    """A model given by what it answers after each round."""

    functions: tuple[Callable[[np.ndarray], np.ndarray], ...]

    @property
    def rounds(self) -> int:
        return len(self.functions) - 1

    def after(self, round: int) -> ReleasedModel:
        return Answers(self.functions[round])

    def predict(self, values: np.ndarray) -> np.ndarray:
        return self.after(self.rounds).predict(values)


def above(threshold: float) -> Callable[[np.ndarray], np.ndarray]:
    """The second class for a marker above the threshold, more surely the further it is."""

    def answer(values: np.ndarray) -> np.ndarray:
        chance = 1 / (1 + np.exp(-20 * (values[:, _MARKER] - threshold)))
        return np.column_stack([1 - chance, chance])

    return answer


THREE = States((lambda values: np.tile([0.6, 0.4], (len(values), 1)), above(0.3), above(0.1)))


@pytest.fixture(scope="module")
def large() -> Dataset:
    return build_dataset(ToyTable(negatives=3000, positives=2000))


def with_clients(release: Release, transfers: tuple[Transfer, ...] = TRANSFERS) -> Release:
    return replace(release, federation=Federation(CLIENTS, transfers))


# Communication -----------------------------------------------------------------------------------


def test_bytes_are_summed_by_phase(table):
    scores = Communication().compute(evaluate(table, with_clients(release_of(table.train))))
    assert named(scores, "federated/bytes").value == 1207
    assert named(scores, "federated/bytes-release").value == 1000
    assert named(scores, "federated/bytes-training").value == 200
    details = scores.details["federated-transfers"]
    assert details["bytes"].sum() == 1207 and details["messages"].tolist() == [5] * 6


@pytest.mark.parametrize(
    "metric", [Communication(), RoundAccuracy(), Convergence(), ClientScores()]
)
def test_absent_for_methods_without_clients(table, metric):
    with pytest.raises(NotComputable, match="several clients"):
        metric.compute(evaluate(table, table.train))


# Rounds ------------------------------------------------------------------------------------------


def test_every_round_has_the_accuracy_and_auroc_of_scikit_learn(large):
    evaluation = evaluate(large, with_clients(Release(model=THREE)))
    scores = RoundAccuracy().compute(evaluation)
    details = scores.details["federated-rounds"]
    labels, values = large.test.rows.labels, large.test.rows.values
    expected = [accuracy_score(labels, f(values).argmax(axis=1)) for f in THREE.functions]
    assert details["accuracy"].tolist() == pytest.approx(expected)
    areas = [roc_auc_score(labels, f(values)[:, 1]) for f in THREE.functions]
    assert details["auroc"].tolist() == pytest.approx(areas)
    assert details["bytes"].tolist() == [1007, 1107, 1207]
    start, end = (named(scores, f"federated/accuracy-{which}") for which in ("start", "final"))
    share = pytest.approx((labels == 0).mean())
    assert start.value == pytest.approx(expected[0]) and start.value == share
    assert end.value == pytest.approx(expected[2])
    assert end.low < end.value < end.high
    # Resamples within classes: always answering the first class is right in exactly its share.
    assert start.low == share and start.high == share
    convergence = Convergence().compute(evaluation)
    assert expected[1] < expected[2] - 0.005
    assert named(convergence, "federated/rounds").value == 2
    assert named(convergence, "federated/bytes-to-converge").value == 1207


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        ([0.5, 0.7, 0.8, 0.8], 2),
        ([0.5, 0.795, 0.8, 0.8], 1),
        ([0.5, 0.8, 0.7, 0.8], 3),
        ([0.81, 0.82, 0.80, 0.80], 0),
        ([0.9, 0.2], 0),
    ],
)
def test_convergence_by_hand(accuracy, expected):
    """The mean over the last tenth of three rounds is that of the last one."""
    assert federated.converged(np.array(accuracy)) == expected


def test_training_that_falls_at_the_end_has_not_converged():
    """Of twenty rounds the last two count: their mean is 0.75, the last one is 0.7."""
    with pytest.raises(NotComputable, match="not converged"):
        federated.converged(np.array([0.5] * 19 + [0.8, 0.7]))


def test_rounds_are_absent_for_rows_and_for_a_model_without_any(table):
    with pytest.raises(NotComputable, match="not trained in rounds"):
        RoundAccuracy().compute(evaluate(table, with_clients(release_of(table.train))))
    alone = with_clients(Release(model=States((above(0.1),))))
    with pytest.raises(NotComputable, match="no rounds"):
        Convergence().compute(evaluate(table, alone))
    scores = RoundAccuracy().compute(evaluate(table, alone))
    assert named(scores, "federated/accuracy-start").value == pytest.approx(
        named(scores, "federated/accuracy-final").value
    )


# Clients -----------------------------------------------------------------------------------------


def test_four_rows_by_hand():
    labels, decided = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    once = np.ones((4, 1))
    computed = [float(part(once)[0]) for part in federated.macro_scores(labels, decided)]
    # Precision 1 and 2/3, recall 1/2 and 1, F1 2/3 and 4/5.
    assert computed == pytest.approx([0.75, 5 / 6, 0.75, 11 / 15])
    # The second row drawn three times, the third never.
    weights = np.array([[1.0], [3.0], [0.0], [1.0]])
    computed = [float(part(weights)[0]) for part in federated.macro_scores(labels, decided)]
    # Precision 1 and 1/4, recall 1/4 and 1, F1 2/5 and 2/5.
    assert computed == pytest.approx([0.4, 0.625, 0.625, 0.4])


def test_a_class_that_is_never_predicted_or_not_there_counts_as_in_scikit_learn():
    rng = np.random.default_rng(3)
    for _ in range(20):
        labels, decided = rng.integers(0, 3, 12), rng.integers(0, 4, 12)
        expected = precision_recall_fscore_support(
            labels, decided, labels=np.unique(labels), average="macro", zero_division=0
        )[:3]
        parts = federated.macro_scores(labels, decided)
        computed = [float(part(np.ones((12, 1)))[0]) for part in parts[1:]]
        assert computed == pytest.approx(expected)


def test_each_client_has_the_scores_of_scikit_learn(large):
    scores = ClientScores().compute(evaluate(large, with_clients(Release(model=THREE))))
    test = large.test.rows
    codes = CLIENTS.of_rows(test, large.schema)
    decided = THREE.predict(test.values).argmax(axis=1)
    details = scores.details["federated-clients"].set_index("client")
    accuracies = []
    for name, rows in [("all", codes >= 0), *((str(code), codes == code) for code in range(5))]:
        if not rows.any():
            assert name not in details.index
            continue
        at_client = details.loc[name]
        assert at_client["rows"] == rows.sum()
        if rows.sum() < 50:
            assert np.isnan(at_client["accuracy"]) and "at least 50" in at_client["reason"]
            continue
        expected = precision_recall_fscore_support(
            test.labels[rows],
            decided[rows],
            labels=np.unique(test.labels[rows]),
            average="macro",
            zero_division=0,
        )
        assert at_client[["precision", "recall", "f1"]].tolist() == pytest.approx(expected[:3])
        assert at_client["accuracy"] == pytest.approx(
            accuracy_score(test.labels[rows], decided[rows])
        )
        assert at_client["accuracy-low"] <= at_client["accuracy"] <= at_client["accuracy-high"]
        if name != "all":
            accuracies.append(at_client["accuracy"])
        else:
            for score, value in zip(("precision", "recall", "f1"), expected, strict=False):
                assert named(scores, f"federated/{score}").value == pytest.approx(value)
    assert len(accuracies) >= 3
    assert named(scores, "federated/client-mean").value == pytest.approx(np.mean(accuracies))
    assert named(scores, "federated/client-worst").value == pytest.approx(min(accuracies))
    assert named(scores, "federated/client-spread").value == pytest.approx(np.std(accuracies))


def test_rows_are_scored_by_the_downstream_trees(large):
    few = Rows(large.train.rows.values[::5], large.train.rows.labels[::5])
    scores = ClientScores().compute(evaluate(large, with_clients(Release(few))))
    assert named(scores, "federated/f1").value > 0.75


def test_clients_are_sites_where_the_method_said_so():
    data = build_dataset(CurialSim(rows=4000))
    release = Release(
        model=Answers(lambda values: np.tile([0.9, 0.1], (len(values), 1))),
        federation=Federation(Clients("site"), ()),
    )
    details = ClientScores().compute(evaluate(data, release)).details["federated-clients"]
    sizes = data.test.frame["site"].value_counts().to_dict()
    assert details.set_index("client")["rows"].drop("all").to_dict() == sizes


def test_test_rows_are_spread_over_the_clients_by_their_shares(large):
    test = large.test.rows
    release = with_clients(Release(model=THREE))
    details, again = (
        ClientScores().compute(evaluate(large, release, seed)).details["federated-clients"]
        for seed in (0, 1)
    )
    sizes = details.set_index("client")["rows"].drop("all")
    shares = CLIENTS.split.shares(2)
    expected = [np.bincount(test.labels) @ shares[:, int(name)] for name in sizes.index]
    assert sizes.tolist() == pytest.approx(expected, abs=60)
    assert again["rows"].tolist() == details["rows"].tolist()


def test_no_client_large_enough(table):
    many = Federation(Clients.of("clients", 40, 100.0), ())
    release = replace(Release(model=THREE), federation=many)
    scores = ClientScores().compute(evaluate(table, release))
    for name in ("mean", "worst", "spread"):
        assert "no client" in named(scores, f"federated/client-{name}").reason
    assert named(scores, "federated/f1").value > 0.6
