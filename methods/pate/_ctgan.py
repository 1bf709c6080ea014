"""Rows of a conditional network of smartnoise-synth (PATE-CTGAN, DP-CTGAN), without its rows.

The library's `sample` conditions the generator on categories of real rows (PATE-CTGAN) or by their
exact frequencies (DP-CTGAN). Here the condition is the class that is asked for, or any category of
any column with the same chance.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench import Categorical, Encoder, Floats

_BATCH = 2_000


class Settings(Protocol):
    """What PATE-CTGAN is told, by itself and inside QUAIL."""

    @property
    def batch(self) -> int: ...
    @property
    def teacher_steps(self) -> int: ...
    @property
    def student_steps(self) -> int: ...
    @property
    def rows_per_teacher(self) -> int: ...
    @property
    def orders(self) -> int: ...


def pate_network(settings: Settings, epsilon: float, delta: float, noise: float) -> Any:
    """The library's PATE-CTGAN, untrained; `noise` is the scale on votes."""
    from snsynth.pytorch.nn import PATECTGAN

    return PATECTGAN(
        epsilon=epsilon,
        delta=delta,
        batch_size=settings.batch,
        teacher_iters=settings.teacher_steps,
        student_iters=settings.student_steps,
        sample_per_teacher=settings.rows_per_teacher,
        noise_multiplier=1.0 / noise,
        moments_order=settings.orders,
        verbose=False,
        cuda=False,
    )


def class_condition(encoder: Encoder, label: int, count: int) -> npt.NDArray[np.float32]:
    """The condition "the label is this class": label last of all categorical columns."""
    widths = [*_widths(encoder), len(encoder.schema.classes)]
    condition = np.zeros((count, sum(widths)), dtype=np.float32)
    condition[:, sum(widths[:-1]) + label] = 1.0
    return condition


def any_condition(
    encoder: Encoder, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """One category of one feature column, all columns and its categories equally likely."""
    widths = np.array(_widths(encoder), dtype=np.int64)
    condition = np.zeros((count, int(widths.sum())), dtype=np.float32)
    if len(widths):
        column = rng.integers(len(widths), size=count)
        category = (rng.random(count) * widths[column]).astype(np.int64)
        condition[np.arange(count), (np.cumsum(widths) - widths)[column] + category] = 1.0
    return condition


def _widths(encoder: Encoder) -> list[int]:
    return [
        len(block.column.categories)
        for block in encoder.blocks
        if isinstance(block.column, Categorical)
    ]


def generated(network: Any, condition: npt.NDArray[np.float32], rng: np.random.Generator) -> Floats:
    """What the generator gives for these conditions: one number or one block for each column."""
    import torch

    random = torch.Generator().manual_seed(int(rng.integers(2**63)))
    generator = network._generator
    generator.eval()
    pieces: list[Floats] = []
    with torch.no_grad():
        for start in range(0, len(condition), _BATCH):
            part = torch.from_numpy(condition[start : start + _BATCH])
            noise = torch.randn(len(part), network._embedding_dim, generator=random)
            outputs = network._apply_activate(generator(torch.cat([noise, part], dim=1)))
            pieces.append(outputs.numpy())
    return np.concatenate(pieces)
