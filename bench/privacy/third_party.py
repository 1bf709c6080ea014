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
    """
    # 256 bits each: a mechanism may draw its private choices from them.
    seeds = rng.integers(2**32, size=(3, 8))
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seeds[0])  # noqa: NPY002 - such a library knows no other generator
    random.seed(seeds[1].tobytes())
    torch: Any = sys.modules.get("torch")
    state = seed = None
    if torch is not None:
        state, seed = torch.get_rng_state(), torch.manual_seed
        seed(int(seeds[2, 0]))
        torch.manual_seed = torch.random.manual_seed = lambda number: torch.default_generator
    try:
        yield
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
        random.setstate(python)
        if torch is not None:
            torch.manual_seed = torch.random.manual_seed = seed
            torch.set_rng_state(state)
