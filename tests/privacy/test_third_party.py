"""Third-party libraries are silenced and leave global generators unchanged."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

from bench.errors import PrivacyContractError
from bench.privacy import third_party
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


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_torch_gets_more_than_the_32_bits_of_a_seed(draw: Callable[[int], torch.Tensor]) -> None:
    """`manual_seed` uses 32 bits: no seed may give the words that a library draws from."""
    torch.manual_seed(7)
    first = draw(20)
    torch.manual_seed(7 + 2**32)
    assert torch.equal(first, draw(20)), "torch.manual_seed uses more than 32 bits now"
    with seeded_global_generators(np.random.default_rng(0)):
        words = torch.get_rng_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
        # The state that a seed makes follows from its first word, by Knuth's recurrence.
        from_seed = int(words[0])
        for number in range(1, 624):
            from_seed = (1812433253 * (from_seed ^ (from_seed >> 30)) + number) % 2**32
            if from_seed != int(words[number]):
                break
        assert number == 1
        assert words.max() < 2**32 and len(np.unique(words)) > 600
        drawn = draw(10_000)
    assert 0.0 < float(drawn.std()) < 1.1 and abs(float(drawn.mean()) - float(first.mean())) < 1.0


def test_another_form_of_torchs_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]  # noqa: NPY002
    monkeypatch.setattr(third_party, "_STATE_START", 32)
    with (
        pytest.raises(PrivacyContractError, match="another form"),
        seeded_global_generators(np.random.default_rng(0)),
    ):
        raise AssertionError("a library would draw from a state that is not random")
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]  # noqa: NPY002


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


def test_seeds_of_256_bits_come_from_the_generator_that_was_passed() -> None:
    """The same numbers as generators that are seeded with the whole of them give."""
    words = np.random.default_rng(3)
    seeds = words.integers(2**32, size=(2, 8))
    twister = words.integers(2**32, size=624, dtype=np.uint64)
    with seeded_global_generators(np.random.default_rng(3)):
        assert np.random.rand() == np.random.RandomState(seeds[0]).rand()  # noqa: NPY002
        assert random.random() == random.Random(seeds[1].tobytes()).random()
        state = torch.get_rng_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
        assert np.array_equal(state, twister)


def test_warnings_reach_no_handler_and_errors_do() -> None:
    records: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    logger, keeper = logging.getLogger("bench-test-library"), Keeper()
    added = logging.NullHandler()
    logger.addHandler(keeper)
    try:
        with silenced_output():
            logger.warning("inside")
            logger.error("failure")
            logging.getLogger().addHandler(added)
        logger.warning("outside")
        assert records == ["failure", "outside"]
        assert added not in logging.getLogger().handlers
    finally:
        logger.removeHandler(keeper)
        logging.getLogger().removeHandler(added)


def test_output_is_restored_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), silenced_output():
        raise KeyError
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        print("hello")
        warnings.warn("careful", stacklevel=1)
    assert capsys.readouterr().out == "hello\n" and len(seen) == 1
    assert logging.root.manager.disable < logging.WARNING
