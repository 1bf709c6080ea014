"""Cards of methods and datasets that a run brought along in `about.json`.

The file may come from a stranger: what is not a card is left out and said, and a dataset counts as
open to everybody only where its own run says so.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, final

from bench.errors import StoreError
from bench.leaderboard.tables.load import Results
from bench.results.records import required

FILE = "about.json"
FORM = 1

LARGEST_TEXT = 8_000
MOST_COLUMNS = 300
MOST_CATEGORIES = 40
_MOST_ITEMS = 5_000
_LARGEST_FILE = 16 << 20

Identity = tuple[str, str]
"""A dataset as a run means it: the plugin's name and its parameters as JSON with sorted keys."""

_Item = TypeVar("_Item")


@final
@dataclass(frozen=True)
class Parameter:
    """A hyperparameter; its default as JSON."""

    name: str
    default: str
    text: str = ""


@final
@dataclass(frozen=True)
class MethodCard:
    """What a method's own file says about it."""

    name: str
    title: str
    paper: str = ""
    summary: str = ""
    text: str = ""
    """The docstring of its module."""
    uses_budget: bool = True
    uses_ipc: bool = True
    seeded: bool = True
    unit: str = ""
    """Whom it protects, where that is not the dataset's unit."""
    environment: str = ""
    requirements: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


@final
@dataclass(frozen=True)
class ColumnCard:
    """A declared column."""

    name: str
    kind: str
    role: str = "feature"
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    """The first ones."""
    category_count: int = 0
    text: str = ""
    source: str = ""
    """Where bounds or categories come from."""


@final
@dataclass(frozen=True)
class ClassCount:
    """Declared rows of one class, or of one site."""

    name: str
    rows: int


@final
@dataclass(frozen=True)
class DatasetCard:
    """What a dataset's own file declares. Nothing here was computed from rows, unless `inferred`
    says so."""

    name: str
    parameters: str
    title: str
    task: str = ""
    licence: str = ""
    citation: str = ""
    source: str = ""
    origin: str = ""
    agreement: str = ""
    stands_for: str = ""
    unit: str = ""
    simulated: bool = False
    inferred: bool = False
    """Bounds, categories and counts were read off the rows."""
    open: bool = False
    """Anybody may have the rows."""
    column_count: int = 0
    columns: tuple[ColumnCard, ...] = ()
    """The first ones."""
    label: str = ""
    by_class: tuple[ClassCount, ...] = ()
    by_site: tuple[ClassCount, ...] = ()
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        """What tells it from the others of its run."""
        return self.name, self.parameters

    @property
    def rows(self) -> int:
        """Declared rows of the whole table."""
        return sum(item.rows for item in self.by_class)


@final
@dataclass(frozen=True)
class Cards:
    """The content of one `about.json`."""

    methods: tuple[MethodCard, ...] = ()
    datasets: tuple[DatasetCard, ...] = ()

    def to_json(self) -> str:
        """The file form."""
        return json.dumps({"form": FORM, **asdict(self)}, indent=1)

    def joined(self, later: Cards) -> Cards:
        """With the cards of a later run; a dataset stays open only where both say so."""
        methods = {card.name: card for card in (*self.methods, *later.methods)}
        datasets = {card.identity: card for card in self.datasets}
        for card in later.datasets:
            before = datasets.get(card.identity)
            kept = card.open and (before is None or before.open)
            datasets[card.identity] = replace(card, open=kept)
        return Cards(tuple(methods.values()), tuple(datasets.values()))


@final
@dataclass(frozen=True)
class About:
    """What is known about the methods and datasets of the runs beside their results."""

    methods: Mapping[str, MethodCard] = field(default_factory=dict)
    """By the plugin's name."""
    datasets: Mapping[Identity, DatasetCard] = field(default_factory=dict)
    open: frozenset[tuple[Path, Identity]] = frozenset()
    """Datasets that a run says anybody may have, with the directory of that run."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    def is_open(self, directory: Path | None, identity: Identity) -> bool:
        """True where the run of a cell says that anybody may have the rows."""
        return directory is not None and (directory, identity) in self.open


def identity_of(cell: Mapping[str, Any]) -> Identity:
    """The dataset of a cell; earlier versions kept no name beside the label."""
    return cell["dataset_name"] or cell["dataset"], cell["dataset_parameters"]


def canonical(parameters: Any) -> str:
    """As the loaded tables spell parameters."""
    return json.dumps(parameters, sort_keys=True)


def read_about(results: Results) -> About:
    """The cards of all runs; of a card that is there twice, that of the later run."""
    methods: dict[str, MethodCard] = {}
    datasets: dict[Identity, DatasetCard] = {}
    opened: set[tuple[Path, Identity]] = set()
    notes = []
    for name, directory in zip(results.runs, results.directories, strict=True):
        try:
            cards = read_cards(directory)
        except StoreError as problem:
            notes.append(f"the cards of run {name} are left out: {problem}")
            continue
        if cards is None:
            continue
        methods |= {card.name: card for card in cards.methods}
        datasets |= {card.identity: card for card in cards.datasets}
        opened |= {(directory, card.identity) for card in cards.datasets if card.open}
    return About(methods, datasets, frozenset(opened), tuple(notes))


def read_cards(directory: Path) -> Cards | None:
    """The cards of one run; None where it has none."""
    path = directory / FILE
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            raise StoreError(f"{FILE} is no plain file, or larger than {_LARGEST_FILE >> 20} MB")
        return parse_cards(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8"
        raise StoreError(f"{FILE} cannot be read ({reason})") from None


def parse_cards(text: str) -> Cards:
    """Strict about types and sizes: any card that is not one makes the file unreadable."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise StoreError(f"{FILE} is not JSON ({type(problem).__name__})") from None
    if not isinstance(document, dict) or document.get("form") != FORM:
        raise StoreError(f"{FILE} is not of form {FORM} (written by another version?)")
    cards = Cards(
        _items(document, "methods", _method),
        _items(document, "datasets", _dataset),
    )
    for names in ([c.name for c in cards.methods], [c.identity for c in cards.datasets]):
        if len(set(names)) < len(names):
            raise StoreError(f"{FILE} holds two cards of one thing")
    return cards


# Reading what may be anything ---------------------------------------------------------------------


def _method(record: Mapping[str, Any]) -> MethodCard:
    own = _plain_fields(MethodCard, record)
    return MethodCard(
        **own,
        requirements=_items(record, "requirements", _line),
        parameters=_items(
            record, "parameters", lambda item: Parameter(**_plain_fields(Parameter, item))
        ),
    )


def _dataset(record: Mapping[str, Any]) -> DatasetCard:
    return DatasetCard(
        **_plain_fields(DatasetCard, record),
        columns=_items(record, "columns", _column, MOST_COLUMNS),
        by_class=_items(record, "by_class", _count),
        by_site=_items(record, "by_site", _count),
        quasi_identifiers=_items(record, "quasi_identifiers", _line),
        sensitive=_items(record, "sensitive", _line),
        rules=_items(record, "rules", _line),
    )


def _column(record: Mapping[str, Any]) -> ColumnCard:
    return ColumnCard(
        **_plain_fields(ColumnCard, record),
        categories=_items(record, "categories", _line, MOST_CATEGORIES),
    )


def _count(record: Mapping[str, Any]) -> ClassCount:
    return ClassCount(**_plain_fields(ClassCount, record))


def _plain_fields(kind: type[Any], record: Any) -> dict[str, Any]:
    """The texts, numbers and flags of a record by name; those without a default must be there."""
    if not isinstance(record, dict):
        raise StoreError(f"{FILE}: a {kind.__name__} is not an object")
    readers: Mapping[str, Callable[[Any], Any]] = {
        "str": _line,
        "bool": _flag,
        "int": _whole,
        "float | None": _number,
    }
    found = {}
    for item in fields(kind):
        read = readers.get(str(item.type))
        if read is not None and item.name in record:
            found[item.name] = read(record[item.name])
    absent = [item.name for item in fields(kind) if required(item) and item.name not in found]
    if absent:
        raise StoreError(f"{FILE}: a {kind.__name__} lacks {', '.join(absent)}")
    return found


def _items(
    record: Any, name: str, read: Callable[[Any], _Item], most: int = _MOST_ITEMS
) -> tuple[_Item, ...]:
    found = record.get(name, [])
    if not isinstance(found, list) or len(found) > most:
        raise StoreError(f"{FILE}: {name} is not a list of at most {most}")
    return tuple(read(item) for item in found)


def _line(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LARGEST_TEXT:
        raise StoreError(f"{FILE}: expected a text of at most {LARGEST_TEXT} characters")
    # Half of a surrogate pair is a character in JSON and none in a file.
    return value.encode("utf-8", "replace").decode()


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise StoreError(f"{FILE}: expected true or false")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**15:
        raise StoreError(f"{FILE}: expected a count")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e300:
        raise StoreError(f"{FILE}: expected a finite number")
    return float(value)
