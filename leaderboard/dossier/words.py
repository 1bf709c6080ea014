"""Plain words for a reader who decides about a release and has not studied differential privacy.

Factors and shares are rounded up, so that "at most" stays true.
"""

from __future__ import annotations

import math
import pathlib
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from dp_accounting import dp_event

from bench.errors import BenchError, StoreError
from bench.leaderboard.dossier import words
from bench.privacy.events import DpEvent, in_words
from bench.privacy.ledger import Entry, Ledger, Path

_FALSE_ALARMS = 0.01
_SHOWN_PARTS = 8

_MILLION = 1e6


def bound(value: float) -> str:
    """An epsilon with four digits, as everywhere in the benchmark."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def chance(probability: float) -> str:
    """A small probability: `1 in 100,000`."""
    if not 0 < probability < 1:
        return f"{probability:g}"
    return f"1 in {_rounded_down(1 / probability, 3):,.0f}"


def factor(epsilon: float) -> str:
    """e to the epsilon, three digits, rounded up."""
    if math.isinf(epsilon):
        return "without limit"
    if epsilon > math.log(_MILLION):
        return f"10^{math.ceil(epsilon / math.log(10))}"
    value = _rounded_up(math.exp(epsilon), 3)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def right_guesses(epsilon: float, delta: float) -> str:
    """How often the best attacker is right who starts from a coin toss, in percent.

    The largest advantage over all tests is (e^eps - 1 + 2 delta) / (e^eps + 1) (Kairouz, Oh and
    Viswanath 2015, the trade-off region of (eps, delta)-DP), so that the accuracy is
    (e^eps + delta) / (e^eps + 1).
    """
    if math.isinf(epsilon):
        return "100%"
    shrunk = math.exp(-epsilon)
    return _percent((1 + delta * shrunk) / (1 + shrunk))


def found_members(epsilon: float, delta: float) -> str:
    """Members that an attack finds at most which accuses 1 in 100 of those who were not there.

    The trade-off region again: TPR <= e^eps FPR + delta and 1 - FPR <= e^eps (1 - TPR) + delta.
    """
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
    """Whom the guarantee protects."""

    name: str
    protects: str

    @property
    def one(self) -> str:
        """`a patient`."""
        return f"a{'n' if self.name[:1].lower() in 'aeiou' else ''} {self.name}"


_PROTECTS: Mapping[str, str] = {
    "row": "One row of the table. Somebody with several rows is protected for each of them, and "
    "not as a person: with k rows the epsilon can be k times as large.",
    "patient": "One patient, with everything that the table holds about that patient.",
    "client": "One client, such as a hospital, with all rows that it holds together.",
    "image": "One image. Somebody who is on several images is protected for each of them, and not "
    "as a person.",
}


def unit_of(name: str) -> PrivacyUnit:
    """The unit of privacy in words."""
    known = name or "row"
    return PrivacyUnit(
        known, _PROTECTS.get(known, f"One {known}, as the dataset's file declares it.")
    )


_ADJACENCIES: Mapping[str, str] = {
    "add-remove": "Compared are the table as it is and the table with one {unit} added or removed. "
    "Against replacing one {unit} by another the epsilon can be twice as large.",
}


def adjacency(name: str, unit: PrivacyUnit) -> str:
    """Which two tables the guarantee compares."""
    known = _ADJACENCIES.get(name, "The definition is called " + repr(name) + ".")
    return known.replace("{unit}", unit.name)


def accountant(name: str) -> str:
    """How the steps were added up."""
    if name == "PLD":
        return "privacy loss distributions (PLD), a numerical composition"
    if "adaptive" in name:
        return (
            f"a filter ({name}), because later steps may depend on earlier results; it proves the "
            "whole budget, also where less of it was spent"
        )
    if name.startswith("RDP"):
        return "Rényi differential privacy (RDP)"
    return "no accountant: there is nothing to add up" if name in ("", "none") else name


def mechanism(event: DpEvent, unit: PrivacyUnit) -> str:
    """What one recorded step did, in a sentence without class names."""
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
            return "a step that touched no row"
        case _:
            return in_words(event)


_SPLITS: Mapping[str, str] = {"train": "training rows", "validation": "validation rows"}


def place(path: Path) -> str:
    """Which part of the rows a step worked on."""
    words = [
        _SPLITS.get(part, f"{part} rows") if key == "split" else f"{key} {part}"
        for key, part in path
    ]
    return ", ".join(words) or "all rows"


def places(paths: Sequence[Path]) -> str:
    """Several parts; many are counted."""
    shown = [place(path) for path in paths[:_SHOWN_PARTS]]
    more = len(paths) - len(shown)
    return "; ".join([*shown, *([f"and {more:,} parts more"] if more else [])])


def times(count: int) -> str:
    """How often."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def several(count: int, noun: str, plural: str = "") -> str:
    """`1 release`, `2 releases`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "Differential privacy",
        "A property of how a release is made: with or without any one unit of privacy in the data, "
        "every outcome stays about equally likely. It is not a property of the rows that came out.",
    ),
    (
        "Epsilon",
        "How much the likelihood of any outcome can change: by a factor of e^epsilon. Small is "
        "strong. Epsilons of several releases add up.",
    ),
    ("Delta", "A probability for which the factor is not promised; it must be far below 1/n."),
    ("Ledger", "The record of every step that touched the private rows, written as they happened."),
    (
        "Accountant",
        "Software that computes one epsilon from the ledger, without the private rows.",
    ),
    (
        "Training rows",
        "The private rows that the release was made from. Control rows are of the same kind and "
        "were never shown to the method: attacks must do better on training rows to count.",
    ),
    (
        "95% interval",
        "What the number could be given how few rows it was measured on. Of forty such intervals "
        "about one lies too high by chance.",
    ),
)


# Ledgers ------------------------------------------------------------------------------------------


_LARGEST_LEDGER = 2 << 20
"""A page is no place for more; the dossier of a release reads larger ones."""
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,199}")


@final
@dataclass(frozen=True)
class LedgerStep:
    """One kind of step of the ledger, with all parts that it was done in equally often."""

    mechanism: str
    times: str
    where: str
    note: str


def steps(ledger: Ledger) -> tuple[LedgerStep, ...]:
    """Entries in their order; equal ones in different parts become one line."""
    unit = words.unit_of(ledger.unit)
    alike: dict[tuple[Entry, int], list[Path]] = {}
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
        yield f"done inside {entry.trust}, which is trusted"
    if entry.adaptive:
        yield "its parameters may depend on earlier results"


def stored_ledger(directory: pathlib.Path, key: str) -> Ledger | None:
    """The ledger of a release in a run directory; None where there is none.

    The directory may be a stranger's: a key that is no plain name, a link, or a file that is no
    ledger are refused with the reason.
    """
    if not _PLAIN_NAME.fullmatch(key):
        return None
    folder = directory / "releases" / key
    path = folder / "ledger.json"
    try:
        if folder.parent.is_symlink() or folder.is_symlink():
            raise StoreError("its folder is a symbolic link, which is not followed")
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("it is no plain file")
        if status.st_size > _LARGEST_LEDGER:
            raise StoreError(f"it is longer than {_LARGEST_LEDGER >> 20} MB; see the dossier")
        return Ledger.from_json(path.read_text(encoding="utf-8"))
    except StoreError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise StoreError(f"it cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise StoreError("it is not UTF-8") from None
    except (BenchError, RecursionError, ArithmeticError, AttributeError) as problem:
        raise StoreError(f"it cannot be read ({problem})") from None
