"""NDPDC: the loss of Algorithm 2, its descent, its calls of the kernel, and strata of survival."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import Budget, PrivateData, sampled_gaussian
from bench.data.augmentation import Augmentation
from bench.data.dataset import Dataset
from bench.data.encoder import EncodedRows
from bench.methods._shared.extractors import extractor
from bench.methods.ndpdc._matching import (
    FeatureMap,
    NoisyMatching,
    RandomFeatures,
    SyntheticRows,
)
from bench.methods.ndpdc._ordinal import encoded, ordinal_projection
from bench.methods.ndpdc._time_strata import TimeStrata, quantile_edges
from bench.methods.ndpdc.ndpdc import Ndpdc
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyImages, ToySurvival, ToyTable

TABLE, SURVIVAL, IMAGES = (
    build_dataset(source) for source in (ToyTable(), ToySurvival(), ToyImages())
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(
    method: Ndpdc,
    dataset: Dataset,
    epsilon: float | None = 1.0,
    ipc: int | None = 10,
    seed: int = 0,
) -> tuple[Release, Ledger]:
    budget = None if epsilon is None else Budget(epsilon, 1e-5)
    private, ledger = open_private(
        dataset, budget, SeededNoise(np.random.default_rng(seed)), check_rows=True
    )
    rng = np.random.default_rng(seed + 1)
    return method.synthesize(private, Spec(dataset.task, ipc, budget), rng), ledger


def matching(**settings: object) -> NoisyMatching:
    chosen: dict[str, object] = {
        "random": RandomFeatures("linear", (4,), 8),
        "iterations": 1,
        "group_size": 50.0,
        "clip": 1.0,
        "noise_multiplier": 1.0,
        "step": 1.0,
        "anneal": False,
        "together": 200,
        "scale_step": True,
    }
    return NoisyMatching(**{**chosen, **settings})  # type: ignore[arg-type]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float, float]]:
    """Clip, noise multiplier and rate of every Poisson sum."""
    made: list[tuple[float, float, float]] = []
    kernel = PrivateData.poisson_sum

    def spy(self, function, clip, noise_multiplier, rate):  # type: ignore[no-untyped-def]
        made.append((clip, noise_multiplier, rate))
        return kernel(self, function, clip, noise_multiplier, rate)

    monkeypatch.setattr(PrivateData, "poisson_sum", spy)
    return made


# The loss and its descent -------------------------------------------------------------------------


def test_the_loss_is_that_of_algorithm_2() -> None:
    """|L/M sum clip(r_j) - wanted|^2 with one long and one short vector, by hand."""
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    feature_map = FeatureMap(lambda values: values, None, (2,))
    loss = matching(group_size=10.0).loss(rows, feature_map, torch.tensor([1.0, 2.0]))
    # clip: (0.6, 0.8) and (0.3, 0.4); times 10/2: (4.5, 6.0)
    assert float(loss) == pytest.approx(3.5**2 + 4.0**2)


@pytest.mark.parametrize("kind", ["convnet", "linear", "mlp"])
def test_a_gradient_step_makes_the_noiseless_loss_smaller(kind: str) -> None:
    inputs = (1, 8, 8) if kind == "convnet" else (64,)
    settings = matching()
    augment = Augmentation("rotate", torch.full((1, 3), 0.8)) if kind == "convnet" else None
    feature_map = FeatureMap(extractor(kind, inputs, 8, seeded()), augment, inputs)
    rows = torch.randn(20, 64, generator=seeded(1))
    wanted = feature_map(torch.rand(50, 64, generator=seeded(2)))
    wanted = (wanted / wanted.norm(dim=1, keepdim=True)).sum(dim=0)
    losses = []
    for _ in range(4):
        losses.append(float(settings.loss(rows, feature_map, wanted)))
        settings.move(rows, feature_map, wanted, 1e-3, seeded())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_real_and_synthetic_rows_have_the_same_features() -> None:
    rows = IMAGES.train.rows
    for kind in ("colour", "crop", "cutout", "flip", "scale", "rotate"):
        augment = Augmentation(kind, torch.rand((1, 3), generator=seeded(4)))
        feature_map = FeatureMap(extractor("convnet", (1, 8, 8), 6, seeded()), augment, (1, 8, 8))
        theirs = feature_map.at_encoded(rows)
        assert torch.equal(theirs, feature_map(torch.tensor(rows.values)))
        assert not theirs.requires_grad
    assert feature_map.at_encoded(rows.take(np.array([], dtype=np.intp))).shape == (
        0,
        theirs.shape[1],
    )


def test_rows_beyond_the_limit_take_turns() -> None:
    settings = matching(together=5)
    feature_map = FeatureMap(extractor("linear", (4,), 8, seeded()), None, (4,))
    rows = torch.randn(12, 4, generator=seeded(1))
    before = rows.clone()
    settings.move(rows, feature_map, torch.full((8,), 3.0), 1.0, seeded(2))
    assert int((rows != before).any(dim=1).sum()) == 5


@pytest.mark.parametrize("together", [200, 25])
def test_rows_of_a_large_class_move_as_far_as_those_of_a_small_one(together: int) -> None:
    # 100 equal rows have the features of one: all that depends on their number is the step. With
    # turns, a quarter of the rows moves four times as far.
    feature_map = FeatureMap(extractor("linear", (4,), 8, seeded()), None, (4,))
    wanted = torch.full((8,), 3.0)

    def moved(rows: int, **settings: object) -> torch.Tensor:
        start = torch.ones(rows, 4)
        after = start.clone()
        matching(**settings).move(after, feature_map, wanted, 1e-3, seeded(2))
        return (after - start).sum(dim=0) / rows

    few = moved(50)
    assert torch.allclose(moved(100, together=together), few, rtol=1e-3)
    assert torch.allclose(moved(100, scale_step=False), few / 2, rtol=1e-3)
    assert torch.allclose(moved(20), few * 2.5, rtol=1e-3)  # as published below L rows


def test_images_keep_the_step_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled: list[bool] = []
    monkeypatch.setattr(NoisyMatching, "move", lambda *given: scaled.append(given[0].scale_step))
    made(Ndpdc(iterations=1), IMAGES)
    assert not any(scaled)
    scaled.clear()
    made(Ndpdc(iterations=1), TABLE)
    assert all(scaled)


def test_an_annealed_step_falls_linearly_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    monkeypatch.setattr(NoisyMatching, "move", lambda *given: steps.append(given[4]))
    made(Ndpdc(iterations=4, table_step=2.0), TABLE)
    assert steps[::2] == steps[1::2] == [2.0, 1.5, 1.0, 0.5]  # two classes
    steps.clear()
    made(Ndpdc(iterations=2, table_step=2.0, table_anneal=False), TABLE)
    made(Ndpdc(iterations=1, step=3.0), IMAGES)
    assert steps[:4] == [2.0] * 4 and set(steps[4:]) == {3.0}


def test_classes_are_learned_when_noise_is_negligible() -> None:
    """The means of the class that the toy shifts are apart, and so are the synthetic ones."""
    release, _ = made(Ndpdc(iterations=200), TABLE, epsilon=1e4, ipc=20)
    real, ours = TABLE.train.rows, release.rows
    assert ours is not None
    gap = [rows.values[rows.labels == 1, 1].mean() - rows.values[rows.labels == 0, 1].mean()
           for rows in (real, ours)]  # fmt: skip
    assert gap[0] > 0.1 and gap[1] > 0.1


# Privacy ------------------------------------------------------------------------------------------


def test_every_iteration_asks_each_class_once_for_the_calibrated_sum(calls: list) -> None:
    release, ledger = made(Ndpdc(iterations=7, clip=0.5), TABLE)
    rates = [min(1.0, 50 / count) for count in TABLE.counts.by_class]
    noise = release.notes["noise_multiplier"]
    assert calls == [(0.5, noise, rate) for _ in range(7) for rate in rates]
    assert ledger.proof().epsilon <= 1.0
    assert {entry.event: count for entry, count in ledger.entries.items()} == {
        sampled_gaussian(rate, noise): 7 for rate in rates
    }
    assert not any(entry.adaptive for entry in ledger.entries)


def test_the_papers_fixed_noise_needs_no_budget() -> None:
    release, ledger = made(Ndpdc(iterations=3, noise_multiplier=1.0), TABLE, epsilon=None)
    assert release.notes["noise_multiplier"] == 1.0 and release.claim is None
    assert 0 < ledger.proof().epsilon < 10


def test_noise_of_the_sums_has_the_scale_of_the_clip() -> None:
    """Real rows that nobody samples: what is left of the sum is N(0, (sigma G)^2)."""
    private, _ = open_private(TABLE, None, SeededNoise(np.random.default_rng(0)))
    part = private.partition("class")["1"]
    inputs = (private.width,)
    feature_map = FeatureMap(extractor("linear", inputs, 4000, seeded()), None, inputs)
    total = part.poisson_sum(feature_map.at_encoded, 0.5, 3.0, 1e-9)
    assert total.std() == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("dataset", [TABLE, IMAGES, SURVIVAL], ids=["table", "images", "survival"])
def test_empty_samples_are_served(dataset: Dataset) -> None:
    # Fixed noise: calibrating it for rates of nearly zero takes seconds.
    method = Ndpdc(iterations=3, group_size=1e-3, noise_multiplier=2.0)
    rows = made(method, dataset, epsilon=None)[0].rows
    assert rows is not None and np.isfinite(rows.values).all()


@pytest.mark.parametrize("dataset", [IMAGES, SURVIVAL], ids=["images", "survival"])
def test_the_same_seed_gives_the_same_bytes(dataset: Dataset) -> None:
    method = Ndpdc(iterations=4)
    first, again, other = (made(method, dataset, seed=seed)[0].rows for seed in (0, 0, 3))
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()


# Survival -----------------------------------------------------------------------------------------


def test_quantile_edges_cut_the_mass_evenly() -> None:
    even = quantile_edges(np.full(8, 100.0), 4)
    assert even == pytest.approx([-1, -0.5, 0, 0.5, 1])
    early = quantile_edges(np.array([300.0, 300.0, 0, 0, 0, 0, 0, 0]), 2)
    assert early == pytest.approx([-1, -0.75, 1], abs=0.01)
    nothing = quantile_edges(np.full(8, -5.0), 4)
    assert nothing == pytest.approx(even)


def test_strata_hold_about_as_many_rows_each_and_every_row_once() -> None:
    private, _ = open_private(SURVIVAL, Budget(1e3, 1e-5), SeededNoise(np.random.default_rng(0)))
    events = private.partition("class")["1"]
    strata = TimeStrata(bins=3, group_size=50.0, iterations=10)
    private.reserve_all(strata.plans(events, 0.5))
    cut = strata.cut(events, 0.5)
    sizes = [len(stratum.part._rows) for stratum in cut]
    assert sum(sizes) == len(events._rows)
    assert max(sizes) - min(sizes) < 0.25 * sum(sizes)
    for stratum in cut:
        times = stratum.part._rows.values[:, -1]
        assert times.min() >= stratum.low - 1e-6 and times.max() <= stratum.high + 1e-6
    assert [stratum.high for stratum in cut[:-1]] == [stratum.low for stratum in cut[1:]]


def test_survival_rows_have_times_inside_the_bounds_and_everything_is_charged(calls: list) -> None:
    release, ledger = made(Ndpdc(iterations=5, time_bins=3), SURVIVAL, ipc=10)
    rows = release.rows
    assert rows is not None and np.bincount(rows.labels).tolist() == [10, 10]
    assert (np.abs(rows.values[:, -1]) <= 1).all()
    times = SURVIVAL.encoder.decode(rows.values, rows.labels)["months"]
    assert times.between(0, 120).all()
    counts = SURVIVAL.counts.by_class
    expected = {min(1.0, 50 / round(count / 3)) for count in counts}
    assert len(calls) == 5 * 6 and {rate for _, _, rate in calls} == expected
    # One histogram per status and 5 sums per bin, all reserved before the first output.
    assert sum(ledger.entries.values()) == 2 + 5 * 6
    assert not any(entry.adaptive for entry in ledger.entries)
    assert ledger.proof().epsilon <= 1.0


def test_fewer_rows_than_time_bins_leave_bins_without_rows() -> None:
    release, _ = made(Ndpdc(iterations=2), SURVIVAL, ipc=2)
    assert release.rows is not None and release.rows.labels.tolist() == [0, 0, 1, 1]


def test_released_times_are_clipped_to_their_bin() -> None:
    rows = torch.tensor([[9.0, 9.0, 9.0], [0.0, 0.0, 0.1], [0.0, 0.0, -9.0]])
    released = SyntheticRows(1, rows, (0.0, 0.5)).released()
    assert released[:, -1] == pytest.approx([0.5, 0.1, 0.0])
    assert released[0, 0] == 9.0


def test_the_row_function_has_one_vector_per_row() -> None:
    rows: EncodedRows = TABLE.train.rows
    feature_map = FeatureMap(
        extractor("mlp", (rows.values.shape[1],), 8, seeded()), None, rows.values.shape[1:]
    )
    together = feature_map.at_encoded(rows)
    alone = torch.cat(
        [feature_map.at_encoded(rows.take(np.array([number]))) for number in range(5)]
    )
    assert torch.allclose(together[:5], alone, atol=1e-6)


# One number per column ----------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL])
def test_ordinal_numbers_of_real_rows_lead_back_to_them(dataset) -> None:
    values = dataset.train.rows.values
    numbers = torch.tensor(values, dtype=torch.float32) @ ordinal_projection(dataset.encoder)
    assert numbers.shape[1] == len(dataset.encoder.blocks)
    assert float(numbers.abs().max()) <= 1.0 + 1e-6
    np.testing.assert_allclose(encoded(dataset.encoder, numbers.numpy()), values, atol=1e-6)


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL])
def test_ordinal_releases_hold_one_category_per_column(dataset) -> None:
    release, ledger = made(Ndpdc(iterations=5, table_inputs="ordinal"), dataset)
    assert release.rows is not None and ledger.proof().epsilon <= 1.0
    for block in dataset.encoder.blocks:
        if block.stop - block.start > 1:
            assert (release.rows.values[:, block.slice].sum(axis=1) == 1.0).all()
