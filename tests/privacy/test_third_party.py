"""Third-party libraries are silenced and leave global generators unchanged."""

from __future__ import annotations

import logging
import random
import warnings

import numpy as np
import pytest
import torch

from bench.privacy.third_party import seeded_global_generators, silenced_output


def drawn() -> tuple[float, float, float]:
    torch.manual_seed(0)  # as smartnoise-synth does
    torch.random.manual_seed(1)  # as opacus 0.14 does
    return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: NPY002


def test_global_generators_are_seeded_and_restored() -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]  # noqa: NPY002
    seed = torch.manual_seed
    answers = []
    for number in (0, 0, 1):
        with seeded_global_generators(np.random.default_rng(number)):
            answers.append(drawn())
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]  # noqa: NPY002
    assert answers[0] == answers[1]
    assert all(one != other for one, other in zip(answers[0], answers[2], strict=True))
    assert before == after
    assert torch.manual_seed is seed is torch.random.manual_seed


def test_nothing_is_printed_warned_or_logged(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = list(logging.getLogger().handlers)
    with warnings.catch_warnings(record=True) as seen, silenced_output():
        print("hello")
        warnings.warn("careful", stacklevel=1)
        logging.warning("root")
    assert capsys.readouterr() == ("", "")
    assert not seen
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger().isEnabledFor(logging.WARNING)
