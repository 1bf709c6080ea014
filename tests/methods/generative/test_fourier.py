"""Random features: the kernel they approximate, and how far one row can move a sum of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.data.encoder import Encoder
from bench.methods.generative.dp_merf import joint_kernel, sum_kernel
from bench.plugins.source import build_dataset
from tests.support.tables import ToyImages, ToySurvival, ToyTable

TABLE = build_dataset(ToyTable())
SOURCES = {
    "table": TABLE,
    "survival": build_dataset(ToySurvival()),
    "images": build_dataset(ToyImages()),
}
KERNELS = {"joint": joint_kernel, "sum": sum_kernel}


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def rows_of(encoder: Encoder, count: int = 12) -> np.ndarray:
    """Random rows that the schema allows."""
    draw = np.random.default_rng(5)
    values = draw.uniform(-1, 1, (count, encoder.width)).astype(np.float32)
    for block in encoder.blocks:
        if block.stop - block.start > 1:
            size = block.stop - block.start
            values[:, block.slice] = np.eye(size)[draw.integers(0, size, count)]
        elif not hasattr(block.column, "low"):
            values[:, block.start] = draw.choice([-1.0, 1.0], count)
    return values


def test_inner_products_approach_the_gaussian_kernel() -> None:
    encoder = SOURCES["images"].encoder
    values = rows_of(encoder)
    features = joint_kernel(encoder, 40_000, 0.75, rng()).of_rows(values)
    length = 0.75 * np.sqrt(64)
    distances = ((values[:, None] - values[None]) ** 2).sum(axis=2)
    assert features @ features.T == pytest.approx(np.exp(-distances / (2 * length**2)), abs=0.02)


def test_the_sum_kernel_is_a_gaussian_of_the_numbers_plus_the_share_of_equal_categories() -> None:
    values = rows_of(TABLE.encoder)
    features = sum_kernel(TABLE.encoder, 40_000, 0.5, rng()).of_rows(values)
    numbers, smoker, stage = values[:, :2], values[:, 2], values[:, 3:]
    distances = ((numbers[:, None] - numbers[None]) ** 2).sum(axis=2)
    gaussian = np.exp(-distances / (2 * 0.5**2 * 2))
    equal = ((smoker[:, None] == smoker[None]).astype(float) + stage @ stage.T) / 2
    assert features @ features.T == pytest.approx((gaussian + equal) / 2, abs=0.02)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", SOURCES)
def test_every_row_has_norm_one(kernel: str, name: str) -> None:
    encoder = SOURCES[name].encoder
    embedding = KERNELS[kernel](encoder, 50, 0.75, rng())
    features = embedding.of_rows(rows_of(encoder))
    assert features.shape == (12, embedding.width)
    assert np.linalg.norm(features, axis=1) == pytest.approx(np.ones(12), abs=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_neighbour_moves_the_sum_by_more_than_one(kernel: str) -> None:
    """Brute force: every row left out, and rows of extreme values added."""
    encoder = TABLE.encoder
    embedding = KERNELS[kernel](encoder, 50, 0.75, rng())
    values = TABLE.train.rows.values[:60]
    total = embedding.of_rows(values).astype(np.float64).sum(axis=0)
    corners = np.array([[a, b, c, *one] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)
                        for one in np.eye(3)], dtype=np.float32)  # fmt: skip
    for row in range(len(values)):
        without = embedding.of_rows(np.delete(values, row, axis=0)).astype(np.float64).sum(axis=0)
        assert np.linalg.norm(total - without) <= 1 + 1e-5
    for corner in corners:
        with_it = embedding.of_rows(np.vstack([values, corner])).astype(np.float64).sum(axis=0)
        assert np.linalg.norm(with_it - total) <= 1 + 1e-5


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", SOURCES)
def test_tensors_and_arrays_have_the_same_features(kernel: str, name: str) -> None:
    encoder = SOURCES[name].encoder
    embedding = KERNELS[kernel](encoder, 50, 0.75, rng())
    values = rows_of(encoder)
    as_tensor = embedding.of_tensor(torch.from_numpy(values)).numpy()
    assert as_tensor == pytest.approx(embedding.of_rows(values), abs=1e-5)


def test_no_rows_have_no_features() -> None:
    embedding = sum_kernel(TABLE.encoder, 50, 0.75, rng())
    assert embedding.of_rows(np.zeros((0, TABLE.encoder.width))).shape == (0, embedding.width)
