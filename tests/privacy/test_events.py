"""Events are written, read back, described and refused by their parameters."""

from __future__ import annotations

import json
import math

import pytest
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from bench.errors import PrivacyContractError
from bench.privacy import events
from bench.privacy.events import flattened, gaussian, laplace, sampled_gaussian

KINDS = [
    gaussian(2.5),
    laplace(0.5),
    dp_event.DiscreteLaplaceDpEvent(0.5, 1),
    dp_event.ZCDpEvent(0.25, 0.125),
    sampled_gaussian(0.1, 2.5),
    dp_event.SelfComposedDpEvent(gaussian(2.5), 3),
    dp_event.NonPrivateDpEvent(),
    dp_event.UnsupportedDpEvent(),
    dp_event.NoOpDpEvent(),
]


@pytest.mark.parametrize("event", KINDS, ids=lambda event: type(event).__name__)
def test_an_event_survives_its_file(event: DpEvent) -> None:
    written = json.dumps(events.to_json(event))
    assert events.from_json(json.loads(written)) == event
    assert json.loads(written)["kind"] == type(event).__name__.removesuffix("DpEvent")


def test_the_file_names_every_parameter() -> None:
    assert events.to_json(sampled_gaussian(0.1, 2.5)) == {
        "kind": "PoissonSampled",
        "sampling_probability": 0.1,
        "event": {"kind": "Gaussian", "noise_multiplier": 2.5},
    }


def test_other_kinds_are_neither_written_nor_read() -> None:
    with pytest.raises(ValueError, match="'Composed' cannot be written; known: Gaussian, Laplace"):
        events.to_json(dp_event.ComposedDpEvent([gaussian(1.0)]))
    with pytest.raises(ValueError, match=r"unknown event kind 'os\.system'; known: Gaussian"):
        events.from_json({"kind": "os.system"})
    with pytest.raises(ValueError, match="unknown event kind None"):
        events.from_json({})


def test_the_builders_take_any_number_and_keep_a_python_float() -> None:
    for event in (gaussian(2), laplace(2)):
        assert type(event.noise_multiplier) is float and event.noise_multiplier == 2.0
    assert sampled_gaussian(0.25, 2) == dp_event.PoissonSampledDpEvent(0.25, gaussian(2.0))


def test_a_sample_of_all_rows_is_no_sample() -> None:
    assert sampled_gaussian(1.0, 2.0) == sampled_gaussian(1.5, 2.0) == gaussian(2.0)
    assert sampled_gaussian(0.999, 2.0) != gaussian(2.0)


def test_composed_events_are_flattened_with_their_counts() -> None:
    inner = dp_event.SelfComposedDpEvent(gaussian(2.0), 3)
    both = dp_event.ComposedDpEvent([inner, laplace(1.0)])
    assert list(flattened(gaussian(2.0), 4)) == [(gaussian(2.0), 4)]
    assert list(flattened(inner, 4)) == [(gaussian(2.0), 12)]
    assert list(flattened(both, 2)) == [(gaussian(2.0), 6), (laplace(1.0), 2)]
    assert list(flattened(gaussian(2.0), 1)) == [(gaussian(2.0), 1)]
    for count in (0, -1, 1.5, 2.0, True):
        with pytest.raises(PrivacyContractError, match="positive whole number"):
            list(flattened(gaussian(2.0), count))


USABLE = [
    *(kind(number) for kind in (gaussian, laplace) for number in (1e-12, 1.0, 1e12)),
    *(dp_event.DiscreteLaplaceDpEvent(number, 1) for number in (1e-12, 1e12)),
    dp_event.ZCDpEvent(0.0, 0.0),
    dp_event.ZCDpEvent(0.5, 1e11),
    dp_event.PoissonSampledDpEvent(1e-300, gaussian(1.0)),
    dp_event.PoissonSampledDpEvent(1.0, gaussian(1.0)),
]
TOO_LARGE = math.nextafter(1e12, math.inf)
UNUSABLE = [
    *(kind(number) for kind in (gaussian, laplace) for number in (9e-13, TOO_LARGE, 0.0, -1.0)),
    *(dp_event.DiscreteLaplaceDpEvent(number, 1) for number in (9e-13, TOO_LARGE)),
    dp_event.ZCDpEvent(-0.1, 1.0),
    dp_event.ZCDpEvent(1.0, -0.1),
    dp_event.ZCDpEvent(1e12, 0.0),
    dp_event.ZCDpEvent(0.0, 1e12),
    dp_event.PoissonSampledDpEvent(9e-301, gaussian(1.0)),
    dp_event.PoissonSampledDpEvent(1.0 + 2.0**-52, gaussian(1.0)),
    dp_event.PoissonSampledDpEvent(0.5, gaussian(0.0)),
]


@pytest.mark.parametrize("event", USABLE, ids=str)
def test_parameters_at_the_limits_are_accepted(event: DpEvent) -> None:
    assert list(flattened(event, 1)) == [(event, 1)]


@pytest.mark.parametrize("event", UNUSABLE, ids=str)
def test_parameters_beyond_the_limits_are_refused(event: DpEvent) -> None:
    with pytest.raises(PrivacyContractError, match="not a usable number"):
        list(flattened(event, 1))


def test_non_private_access_is_recognised() -> None:
    assert events.is_non_private(events.non_private())
    assert not any(events.is_non_private(event) for event in KINDS[:6])


@pytest.mark.parametrize(
    "event, words",
    [
        (gaussian(1.23456), "Gaussian noise, multiplier 1.235"),
        (laplace(20.0), "Laplace noise, multiplier 20"),
        (dp_event.ZCDpEvent(0.125), "zero-concentrated DP, rho 0.125"),
        (
            sampled_gaussian(0.01, 2.0),
            "Gaussian noise, multiplier 2, on a Poisson sample of rate 0.01",
        ),
        (
            dp_event.SelfComposedDpEvent(laplace(3.0), 7),
            "7 times (Laplace noise, multiplier 3)",
        ),
        (events.non_private(), "rows read without noise"),
        (dp_event.UnsupportedDpEvent(), "UnsupportedDpEvent"),
    ],
)
def test_events_in_words(event: DpEvent, words: str) -> None:
    assert events.in_words(event) == words
