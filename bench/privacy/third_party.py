"""Calls of third-party libraries that print, warn and draw from global generators."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.errors import PrivacyContractError


@contextlib.contextmanager
def silenced_output() -> Iterator[None]:
    """Hide what a library prints, warns about or logs.

    QUAIL logs through the root logger, which adds a handler to it permanently: it is removed.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        root.handlers[:] = handlers
        logging.disable(level)


@contextlib.contextmanager
def seeded_global_generators(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators that a library draws from, and restore them afterwards.

    Some libraries seed torch themselves, with a constant (smartnoise-synth 1.0.8) or from the
    operating system (opacus 0.14): meanwhile their calls of `torch.manual_seed` do nothing.

    A mechanism may draw its private choices from them, so that no seed is shorter than 256 bits.
    NumPy's and Python's are seeded with as many. `torch.manual_seed` uses the last 32 bits of its
    number only: torch gets the whole state of its Mersenne twister instead, where it has been
    imported (a library that imports it later would draw from torch's constant first seed).
    """
    seeds = rng.integers(2**32, size=(2, 8))
    torch: Any = sys.modules.get("torch")
    drawn = None if torch is None else _torch_state(torch, rng)
    state = seed = None
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seeds[0])  # noqa: NPY002 - such a library knows no other generator
    random.seed(seeds[1].tobytes())
    if torch is not None:
        state, seed = torch.get_rng_state(), torch.manual_seed
        torch.set_rng_state(drawn)
        torch.manual_seed = torch.random.manual_seed = lambda number: torch.default_generator
    try:
        yield
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
        random.setstate(python)
        if torch is not None:
            torch.manual_seed = torch.random.manual_seed = seed
            torch.set_rng_state(state)


_STATE_WORDS = 624
"""Words of 32 bits in the state of a Mersenne twister; torch keeps each in 64 bits."""
_STATE_START = 24
"""Bytes before the words: seed, position, flags."""


def _torch_state(torch: Any, rng: np.random.Generator) -> Any:
    """Return a state of torch's generator with all words of the Mersenne twister drawn from `rng`.

    Where the words lie was read in torch's code (`CPUGeneratorImpl.cpp`); whether they lie there
    is checked with those of the seed 0, which every Mersenne twister has in common.
    """
    state = torch.Generator().manual_seed(0).get_state().numpy().copy()
    words = state[_STATE_START : _STATE_START + 8 * _STATE_WORDS].view(np.uint64)
    expected = np.random.RandomState(0).get_state(legacy=False)["state"]["key"]
    if not np.array_equal(words, expected):
        raise PrivacyContractError(
            f"torch {torch.__version__} keeps the state of its generator in another form than the "
            "versions that were checked, so that a library cannot be given a seed of more than 32 "
            "bits; install the version of torch in constraints.txt"
        )
    words[:] = rng.integers(2**32, size=_STATE_WORDS, dtype=np.uint64)
    return torch.from_numpy(state)
