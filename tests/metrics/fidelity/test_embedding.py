"""How well real and released rows mix, and the picture of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from bench.errors import NotComputable
from bench.metrics.fidelity import embedding
from bench.metrics.fidelity.embedding import Embedding, mixing
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, only


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The picture is not what most tests look at: few iterations, few rows."""
    monkeypatch.setattr(embedding, "ITERATIONS", 250)
    monkeypatch.setattr(embedding, "ROWS", 100)


def test_neighbours_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    rows, kinds = rng.normal(size=(60, 4)), rng.random(60) < 0.5
    neighbours = NearestNeighbors(n_neighbors=6).fit(rows).kneighbors(rows, return_distance=False)
    expected = (kinds[neighbours[:, 1:]] != kinds[:, None]).mean(axis=1)
    assert mixing(rows, kinds) == pytest.approx(expected)


def test_ties_count_in_part():
    """All rows equal: of the 11 others, as many are of the other kind as they are."""
    kinds = np.repeat([False, True], [4, 8])
    shares = mixing(np.ones((12, 3)), kinds)
    assert shares[:4] == pytest.approx(8 / 11)
    assert shares[4:] == pytest.approx(4 / 11)


def test_rows_far_from_all_training_rows_do_not_mix(table):
    rows = table.train.rows
    far = Release(Rows(rows.values[:100] + 50, rows.labels[:100]))
    assert only(Embedding().compute(evaluate(table, far))) == pytest.approx((1, 1, 1))


def test_held_out_rows_mix(table):
    value, low, high = only(Embedding().compute(evaluate(table, table.test)))
    assert value < 0.2
    assert low <= value <= high <= 1


def test_a_cloud_around_the_real_rows_does_not_mix(table):
    """All neighbours of both tables are real: half of the rows have neighbours of the other."""
    rows = table.train.rows
    noise = np.random.default_rng(3).normal(scale=20, size=rows.values[:100].shape)
    cloud = Release(Rows(rows.values[:100] + noise, rows.labels[:100]))
    assert only(Embedding().compute(evaluate(table, cloud)))[0] > 0.75


def test_copies_do_not_pass_for_mixed_rows(table):
    """Each copy's nearest row is its original: the share lies above what chance gives."""
    rows = np.concatenate([table.train.rows.values[:100]] * 2)
    shares = mixing(rows, np.repeat([False, True], 100))
    assert shares.mean() > 100 / 199


def test_the_picture_holds_coordinates_and_kind_only(table):
    scores = Embedding().compute(evaluate(table, table.test))
    picture = scores.details["embedding"]
    assert list(picture.columns) == ["x", "y", "rows"]
    counts = picture["rows"].value_counts()
    assert counts["real"] == counts["released"] <= 100
    assert np.isfinite(picture[["x", "y"]].to_numpy()).all()
    # Well apart in space, well apart in the picture: a line between the means separates them.
    rows = table.train.rows
    far = Release(Rows(rows.values[:100] + 50, rows.labels[:100]))
    picture = Embedding().compute(evaluate(table, far)).details["embedding"]
    places, kinds = picture[["x", "y"]].to_numpy(), (picture["rows"] == "released").to_numpy()
    middle = [places[kinds == kind].mean(axis=0) for kind in (False, True)]
    nearer = np.linalg.norm(places - middle[1], axis=1) < np.linalg.norm(places - middle[0], axis=1)
    assert (nearer == kinds).mean() > 0.95


def test_the_same_seed_gives_the_same_picture(table):
    first, second, other = (
        Embedding().compute(evaluate(table, table.test, seed)).details["embedding"]
        for seed in (0, 0, 1)
    )
    assert first.equals(second)
    assert not first.equals(other)


def test_classes_of_the_release_are_matched(table):
    """A release of one class stands beside training rows of that class alone."""
    rows = table.test.rows
    one = np.asarray(rows.labels) == 1
    scores = Embedding().compute(evaluate(table, Release(Rows(rows.values[one], rows.labels[one]))))
    assert only(scores)[0] < 0.3


def test_rows_of_weight_zero_are_not_drawn(table):
    rows = table.train.rows
    values = np.concatenate([rows.values[:100], rows.values[:100] + 50])
    labels = np.concatenate([rows.labels[:100]] * 2)
    weights = np.repeat([0.0, 1.0], 100)
    weighted = Release(Rows(values, labels, weights=weights))
    assert only(Embedding().compute(evaluate(table, weighted)))[0] == pytest.approx(1)


def test_few_rows_and_models_have_no_value(table):
    rows = table.train.rows
    few = Release(Rows(rows.values[:10], rows.labels[:10]))
    with pytest.raises(NotComputable, match="20 are needed"):
        Embedding().compute(evaluate(table, few))
    model = Release(model=Answers(lambda values: np.zeros(len(values))))
    with pytest.raises(NotComputable, match="model"):
        Embedding().compute(evaluate(table, model))


def test_images_and_survival_have_one_too(images, patients):
    for dataset in (images, patients):
        assert 0 <= only(Embedding().compute(evaluate(dataset, dataset.test)))[0] < 0.5
