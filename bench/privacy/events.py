"""DP events: what happened to the private rows, as plain data that can be written and read back.

The classes are those of dp-accounting; this module builds, serialises and describes them. Only the
kinds in `_KINDS` are read back, so a ledger from an unknown source cannot name arbitrary classes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import attr
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent as DpEvent

from bench.errors import PrivacyContractError

_KINDS: Mapping[str, type[DpEvent]] = {
    kind.__name__.removesuffix("DpEvent"): kind
    for kind in (
        dp_event.GaussianDpEvent,
        dp_event.LaplaceDpEvent,
        dp_event.DiscreteLaplaceDpEvent,
        dp_event.ZCDpEvent,
        dp_event.PoissonSampledDpEvent,
        dp_event.SelfComposedDpEvent,
        dp_event.NonPrivateDpEvent,
        dp_event.UnsupportedDpEvent,
        dp_event.NoOpDpEvent,
    )
}


def gaussian(noise_multiplier: float) -> DpEvent:
    """Return the event of Gaussian noise of deviation `noise_multiplier` x L2 sensitivity."""
    return dp_event.GaussianDpEvent(float(noise_multiplier))


def laplace(noise_multiplier: float) -> DpEvent:
    """Return the event of Laplace noise of scale `noise_multiplier` x L1 sensitivity.

    It is 1/noise_multiplier-DP.
    """
    return dp_event.LaplaceDpEvent(float(noise_multiplier))


def exponential(epsilon: float) -> DpEvent:
    """Return the event of the exponential mechanism at `epsilon`; see `selection.py`."""
    return dp_event.ZCDpEvent(float(epsilon) ** 2 / 8.0)


@functools.lru_cache(maxsize=4096)
def sampled_gaussian(rate: float, noise_multiplier: float) -> DpEvent:
    """Return the event of a Gaussian mechanism on a Poisson sample of probability `rate`."""
    if rate >= 1.0:
        return gaussian(noise_multiplier)
    return dp_event.PoissonSampledDpEvent(float(rate), gaussian(noise_multiplier))


def flattened(event: DpEvent, count: int | float) -> Iterator[tuple[DpEvent, int]]:
    """Yield the single events of a composed one, `count` times; refuse what has no accounting.

    A noise multiplier that is no number, or so small that its square vanishes, would make an
    accountant return zero instead of infinity.
    """
    if isinstance(count, bool | float) or count != int(count) or count < 1:
        raise PrivacyContractError(
            f"the count of an event must be a positive whole number, got {count!r}"
        )
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from flattened(event.event, int(count) * int(event.count))
    elif isinstance(event, dp_event.ComposedDpEvent):
        for inner in event.events:
            yield from flattened(inner, int(count))
    else:
        _check(event)
        yield event, int(count)


def _check(event: DpEvent) -> None:
    match event:
        case dp_event.GaussianDpEvent() | dp_event.LaplaceDpEvent():
            low, value, high = 1e-12, event.noise_multiplier, 1e12
        case dp_event.DiscreteLaplaceDpEvent():
            low, value, high = 1e-12, event.noise_parameter, 1e12
        case dp_event.ZCDpEvent():
            low, value, high = 0.0, min(event.rho, event.xi), max(event.rho, event.xi)
            high = high if high < 1e12 else -1.0
        case dp_event.PoissonSampledDpEvent():
            _check(event.event)
            low, value, high = 1e-300, event.sampling_probability, 1.0
        case _:
            return
    if not low <= value <= high:
        raise PrivacyContractError(f"{event}: its parameter is not a usable number")


def non_private() -> DpEvent:
    """Return the event of rows read without noise."""
    return dp_event.NonPrivateDpEvent()


def is_non_private(event: DpEvent) -> bool:
    """Whether an event is non-private access, which no accountant can bound."""
    return isinstance(event, dp_event.NonPrivateDpEvent)


def with_noise(event: DpEvent, factor: float) -> DpEvent:
    """Return the event of the same mechanism with so many times its noise."""
    match event:
        case dp_event.GaussianDpEvent():
            return dp_event.GaussianDpEvent(event.noise_multiplier * factor)
        case dp_event.LaplaceDpEvent():
            return dp_event.LaplaceDpEvent(event.noise_multiplier * factor)
        case dp_event.ZCDpEvent():
            return dp_event.ZCDpEvent(event.rho / factor**2)
        case dp_event.PoissonSampledDpEvent():
            inner = with_noise(event.event, factor)
            return dp_event.PoissonSampledDpEvent(event.sampling_probability, inner)
        case _:
            return event


def to_json(event: DpEvent) -> dict[str, Any]:
    """Return the event as a JSON object with its kind."""
    kind = type(event).__name__.removesuffix("DpEvent")
    if kind not in _KINDS:
        raise ValueError(f"event kind {kind!r} cannot be written; known: {', '.join(_KINDS)}")
    fields: dict[str, Any] = {"kind": kind}
    for attribute in attr.fields(type(event)):
        value = getattr(event, attribute.name)
        fields[attribute.name] = to_json(value) if isinstance(value, DpEvent) else value
    return fields


def from_json(fields: Mapping[str, Any]) -> DpEvent:
    """Return the event that `to_json` wrote; an unknown kind is an error that names it."""
    kind = _KINDS.get(str(fields.get("kind")))
    if kind is None:
        raise ValueError(f"unknown event kind {fields.get('kind')!r}; known: {', '.join(_KINDS)}")
    arguments: dict[str, Any] = {}
    for attribute in attr.fields(kind):
        value = fields[attribute.name]
        arguments[attribute.name] = from_json(value) if isinstance(value, Mapping) else value
    return kind(**arguments)


def in_words(event: DpEvent) -> str:
    """Describe an event in one line, for readers who do not know the class names."""
    match event:
        case dp_event.GaussianDpEvent():
            return f"Gaussian noise, multiplier {event.noise_multiplier:.4g}"
        case dp_event.LaplaceDpEvent():
            return f"Laplace noise, multiplier {event.noise_multiplier:.4g}"
        case dp_event.ZCDpEvent():
            return f"zero-concentrated DP, rho {event.rho:.4g}"
        case dp_event.PoissonSampledDpEvent():
            rate = event.sampling_probability
            return f"{in_words(event.event)}, on a Poisson sample of rate {rate:.4g}"
        case dp_event.SelfComposedDpEvent():
            return f"{event.count} times ({in_words(event.event)})"
        case dp_event.NonPrivateDpEvent():
            return "rows read without noise"
        case _:
            return type(event).__name__
