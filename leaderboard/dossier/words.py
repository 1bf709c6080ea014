"""Plain words about privacy for readers who have not studied differential privacy.

Factors and shares are rounded up, so that "at most" stays true.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from dp_accounting import dp_event

from bench.errors import BenchError, StoreError
from bench.leaderboard.dossier import words
from bench.privacy.events import DpEvent, in_words
from bench.privacy.ledger import Entry, Ledger, PartPath
from bench.results.opening import in_the_run, is_plain_name, read_text

_FALSE_ALARMS = 0.01
_SHOWN_PARTS = 8

_MILLION = 1e6
_UNKNOWN = "unknown"
"""What follows from an epsilon that is none: tables of strangers may hold any number."""


def bound(value: float) -> str:
    """Return an epsilon with four digits."""
    if math.isnan(value):
        return _UNKNOWN
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def chance(probability: float) -> str:
    """Return a small probability: `1 in 100,000`."""
    if not 1e-300 < probability < 1:
        return f"{probability:g}"
    return f"1 in {_rounded_down(1 / probability, 3):,.0f}"


def factor(epsilon: float) -> str:
    """Return e to the epsilon with three digits, rounded up."""
    if not epsilon >= 0:
        return _UNKNOWN
    if math.isinf(epsilon):
        return "without limit"
    if epsilon > math.log(_MILLION):
        return f"10^{math.ceil(epsilon / math.log(10))}"
    value = _rounded_up(math.exp(epsilon), 3)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def right_guesses(epsilon: float, delta: float) -> str:
    """Return the accuracy of the best attacker with a prior of one half, in percent.

    The largest advantage over all tests is (e^eps - 1 + 2 delta) / (e^eps + 1) (Kairouz, Oh and
    Viswanath 2015, the trade-off region of (eps, delta)-DP), so that the accuracy is
    (e^eps + delta) / (e^eps + 1).
    """
    if not (epsilon >= 0 and delta >= 0):
        return _UNKNOWN
    if math.isinf(epsilon):
        return "100%"
    shrunk = math.exp(-epsilon)
    return _percent((1 + delta * shrunk) / (1 + shrunk))


def found_members(epsilon: float, delta: float) -> str:
    """Return the largest true-positive rate of an attack with a false-positive rate of 1%.

    From the trade-off region: TPR <= e^eps FPR + delta and 1 - FPR <= e^eps (1 - TPR) + delta.
    """
    if not (epsilon >= 0 and delta >= 0):
        return _UNKNOWN
    if math.isinf(epsilon):
        return "100%"
    first = math.exp(min(epsilon, 50.0)) * _FALSE_ALARMS + delta
    second = 1 - math.exp(-epsilon) * (1 - delta - _FALSE_ALARMS)
    return _percent(min(first, second, 1.0))


def _percent(share: float) -> str:
    steps = 1e4 if share < 0.1 else 1e3
    return f"{math.ceil(min(share, 1.0) * steps - 1e-9) / (steps / 100):g}%"


def _rounded_up(value: float, digits: int) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale - 1e-9) / scale


def _rounded_down(value: float, digits: int) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale + 1e-9) / scale


@final
@dataclass(frozen=True)
class PrivacyUnit:
    """The unit of privacy: whom the guarantee protects."""

    name: str
    protects: str

    @property
    def one(self) -> str:
        """The unit with its article: `a patient`."""
        return f"a{'n' if self.name[:1].lower() in 'aeiou' else ''} {self.name}"


_PROTECTS: Mapping[str, str] = {
    "row": "One row of the table. A person with several rows is protected for each of them, but "
    "not as a person: with k rows the epsilon can be k times as large.",
    "patient": "One patient, with everything that the table holds about that patient.",
    "client": "One client, such as a hospital, with all rows that it holds together.",
    "image": "One image. A person on several images is protected for each of them, but not as a "
    "person.",
}


def unit_of(name: str) -> PrivacyUnit:
    """Return the unit of privacy in words."""
    known = name or "row"
    return PrivacyUnit(
        known, _PROTECTS.get(known, f"One {known}, as the dataset's file declares it.")
    )


_ADJACENCIES: Mapping[str, str] = {
    "add-remove": "The guarantee compares the table with the same table after adding or removing "
    "one {unit}. If one {unit} is replaced by another, the epsilon can be twice as large.",
}


def adjacency(name: str, unit: PrivacyUnit) -> str:
    """Return in words which two tables the guarantee compares."""
    known = _ADJACENCIES.get(name, "The definition is called " + repr(name) + ".")
    return known.replace("{unit}", unit.name)


def accountant(name: str) -> str:
    """Return in words how the steps were composed."""
    if name == "PLD":
        return "privacy loss distributions (PLD), a numerical composition"
    if "adaptive" in name:
        return (
            f"a privacy filter ({name}), because later steps may depend on earlier results; it "
            "proves the whole budget even if less was spent"
        )
    if name.startswith("RDP"):
        return "Rényi differential privacy (RDP)"
    return "no accountant: there is nothing to compose" if name in ("", "none") else name


def mechanism(event: DpEvent, unit: PrivacyUnit) -> str:
    """Return in words what one recorded step did."""
    most = f"the most that one {unit.name} can change the result"
    match event:
        case dp_event.GaussianDpEvent():
            return (
                f"a result with Gaussian noise, standard deviation {event.noise_multiplier:.4g} "
                f"times {most}"
            )
        case dp_event.LaplaceDpEvent():
            return f"a result with Laplace noise, scale {event.noise_multiplier:.4g} times {most}"
        case dp_event.DiscreteLaplaceDpEvent():
            return f"a count with discrete Laplace noise, parameter {event.noise_parameter:.4g}"
        case dp_event.ZCDpEvent():
            return f"a step with zero-concentrated differential privacy, rho {event.rho:.4g}"
        case dp_event.PoissonSampledDpEvent():
            rate = event.sampling_probability
            return (
                f"on a random sample that holds each {unit.name} with probability {rate:.3g}: "
                f"{mechanism(event.event, unit)}"
            )
        case dp_event.NonPrivateDpEvent():
            return "the rows were read without any noise"
        case dp_event.UnsupportedDpEvent():
            return "a step that no accountant can bound"
        case dp_event.NoOpDpEvent():
            return "a step that accessed no row"
        case _:
            return in_words(event)


_SPLITS: Mapping[str, str] = {"train": "training rows", "validation": "validation rows"}


def place(path: PartPath) -> str:
    """Return in words which part of the rows a step accessed."""
    words = [
        _SPLITS.get(part, f"{part} rows") if key == "split" else f"{key} {part}"
        for key, part in path
    ]
    return ", ".join(words) or "all rows"


def places(paths: Sequence[PartPath]) -> str:
    """Return several parts in words; if there are many, their number."""
    shown = [place(path) for path in paths[:_SHOWN_PARTS]]
    more = len(paths) - len(shown)
    return "; ".join([*shown, *([f"and {more:,} more parts"] if more else [])])


def times(count: int) -> str:
    """Return a count in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def several(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 release`, `2 releases`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "Differential privacy",
        "A property of the mechanism behind a release: with or without any one unit of privacy in "
        "the data, every output is about equally likely. It is no property of the released rows.",
    ),
    (
        "Epsilon",
        "How much the probability of any output can change: by a factor of e^epsilon. Smaller is "
        "stronger. Epsilons of several releases add up. The proven epsilon is the upper bound that "
        "the harness computes from the ledger.",
    ),
    ("Delta", "The probability with which the factor may be exceeded; it must be far below 1/n."),
    ("Ledger", "The record of every access to the private rows, written when it happened."),
    (
        "Accountant",
        "Software that computes epsilon from the ledger, without the private rows.",
    ),
    (
        "Training rows",
        "The private rows that the release was made from. Control rows are of the same kind and "
        "were never shown to the method: only the excess of an attack on training rows counts.",
    ),
    (
        "95% interval",
        "The range of values that are consistent with the limited number of rows. About one in "
        "forty such intervals is too high by chance.",
    ),
)


# Ledgers ------------------------------------------------------------------------------------------


_LARGEST_LEDGER = 2 << 20
"""Larger ledgers are shown only in the dossier of a release."""


@final
@dataclass(frozen=True)
class LedgerStep:
    """One kind of step of the ledger, with all parts in which it has the same count."""

    mechanism: str
    times: str
    where: str
    note: str


def steps(ledger: Ledger) -> tuple[LedgerStep, ...]:
    """Return the entries in their order; equal ones in different parts become one line."""
    unit = words.unit_of(ledger.unit)
    alike: dict[tuple[Entry, int], list[PartPath]] = {}
    for entry, count in ledger.entries.items():
        anywhere = Entry((), entry.event, entry.adaptive, entry.reason, entry.trust)
        alike.setdefault((anywhere, count), []).append(entry.path)
    return tuple(
        LedgerStep(
            mechanism=words.mechanism(entry.event, unit),
            times=words.times(count) + (" in each part" if len(paths) > 1 else ""),
            where=words.places(paths),
            note="; ".join(_notes(entry)),
        )
        for (entry, count), paths in alike.items()
    )


def _notes(entry: Entry) -> Iterable[str]:
    if entry.reason:
        yield f"reason given: {entry.reason}"
    if entry.trust:
        yield f"performed by {entry.trust}, which is trusted"
    if entry.adaptive:
        yield "its parameters may depend on earlier results"


def stored_ledger(directory: pathlib.Path, key: str) -> Ledger | None:
    """Return the ledger of a release in a run directory; None if there is none.

    The directory is untrusted: an invalid key, a link, or a file that is not a ledger are rejected
    with the reason.
    """
    if not is_plain_name(key):
        return None
    try:
        text = read_text(directory, "releases", key, "ledger.json", most=_LARGEST_LEDGER)
        return None if text is None else Ledger.from_json(text)
    except StoreError as problem:
        # The path would name the key, which a public site does not show.
        name = in_the_run(problem, directory).replace(f"releases/{key}/ledger.json", "it")
        raise StoreError(name.replace(f"releases/{key}", "its folder")) from None
    except BenchError as problem:
        raise StoreError(f"it cannot be read ({problem})") from None
