"""Cards of the methods and datasets of a run, from what plugins declare: `about.json`.

The leaderboard reads run directories only, so what its pages say about a method or a dataset must
lie there. No row is read for it, and no path of this machine gets in.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.engine.grid import Grid
from bench.errors import BenchError, StoreError
from bench.leaderboard.tables.about import (
    FILE,
    LARGEST_TEXT,
    MOST_CATEGORIES,
    MOST_COLUMNS,
    Cards,
    ClassCount,
    ColumnCard,
    DatasetCard,
    Identity,
    MethodCard,
    Parameter,
    canonical,
    read_cards,
)
from bench.plugins import registry
from bench.plugins.method import Method
from bench.plugins.source import DatasetSource
from bench.plugins.user_tables import OwnTable
from bench.results.records import Variant
from bench.results.run_directory import write_atomically

_BUILT_IN = "bench.datasets."
_NO_AGREEMENT = "none"
_PIXELS = 2
"""Feature columns of an image that are listed; the others are like them."""

_Card = TypeVar("_Card")


def write_cards(directory: Path, grid: Grid) -> None:
    """Add the cards of a grid to those that the run directory has already."""
    cards = Cards(
        _unique(map(_method_of, grid.methods), lambda card: card.name),
        _unique(map(_dataset_of, grid.datasets), lambda card: card.identity),
    )
    _write(directory, _existing(directory).joined(cards))


def join_cards(directory: Path, sources: Mapping[Path, Collection[Identity]]) -> None:
    """The cards of several runs in one; given with the datasets that each run's cells are about.

    A run without the card of one of its datasets does not say that anybody may have its rows: the
    joined run does not say so either.
    """
    joined, silent = Cards(), set[Identity]()
    for source, identities in sources.items():
        cards = _existing(source)
        joined = joined.joined(cards)
        silent |= set(identities) - {card.identity for card in cards.datasets}
    datasets = tuple(
        dataclasses.replace(card, open=card.open and card.identity not in silent)
        for card in joined.datasets
    )
    if joined.methods or datasets:
        _write(directory, Cards(joined.methods, datasets))


def dataset_identity(name: str, label: str, parameters: str) -> Identity:
    """Of a result row."""
    try:
        return name or label, canonical(json.loads(parameters))
    except ValueError:
        return name or label, parameters


def _existing(directory: Path) -> Cards:
    """A damaged file is as good as none: it is written anew."""
    try:
        return read_cards(directory) or Cards()
    except StoreError:
        return Cards()


def _write(directory: Path, cards: Cards) -> None:
    try:
        write_atomically(directory / FILE, cards.to_json().encode())
    except OSError as problem:
        raise StoreError(f"{directory / FILE}: cannot be written ({problem.strerror})") from None


def _unique(cards: Iterable[_Card | None], name: Callable[[_Card], object]) -> tuple[_Card, ...]:
    return tuple({name(card): card for card in cards if card is not None}.values())


# Methods ------------------------------------------------------------------------------------------


def _method_of(entry: Variant) -> MethodCard:
    return method_card(registry.method_class(entry.name))


def method_card(kind: type[Method]) -> MethodCard:
    """What a method says about itself."""
    environment = kind.environment
    module = inspect.getmodule(kind)
    # A class without a docstring would answer with that of its base.
    summary = inspect.cleandoc(kind.__doc__ or "")
    return MethodCard(
        name=_short(kind.name),
        title=_short(kind.title),
        paper=_short(kind.paper),
        # A dataclass without a docstring is given its signature as one.
        summary="" if summary.startswith(f"{kind.__name__}(") else _short(summary),
        text=_short(inspect.cleandoc((module.__doc__ if module else "") or "")),
        uses_budget=bool(kind.uses_budget),
        uses_ipc=bool(kind.uses_ipc),
        seeded=bool(kind.seeded),
        unit=_short(kind.unit),
        environment="" if environment is None else _short(environment.name),
        requirements=() if environment is None else tuple(map(_short, environment.requirements)),
        parameters=_parameters(kind),
    )


def _parameters(kind: type[Method]) -> tuple[Parameter, ...]:
    said = _said_of_fields(kind)
    # A method need not be a dataclass, so its type does not say that it may be.
    plugin: Any = kind
    return tuple(
        Parameter(_short(item.name), _default(item), _short(said.get(item.name, "")))
        for item in (dataclasses.fields(plugin) if dataclasses.is_dataclass(plugin) else ())
    )


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        value = item.default
    elif item.default_factory is not dataclasses.MISSING:
        value = item.default_factory()
    else:
        return ""
    return _short(json.dumps(value, default=str))


def _said_of_fields(kind: type[Any]) -> dict[str, str]:
    """The text below a field, which Python itself does not keep."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for item, below in itertools.pairwise(body):
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[item.target.id] = " ".join(below.value.value.split())
    return found


# Datasets -----------------------------------------------------------------------------------------


def _dataset_of(entry: Variant) -> DatasetCard | None:
    """None where the dataset cannot say what it is: its cells fail with the reason."""
    try:
        return dataset_card(registry.build_source(entry.name, dict(entry.parameters)), entry)
    except BenchError:
        return None


def dataset_card(source: DatasetSource, entry: Variant) -> DatasetCard:
    """What a dataset declares, without touching a row."""
    declared = source.declare()
    schema = declared.schema
    return DatasetCard(
        name=_short(entry.name),
        parameters=_short(canonical(dict(entry.parameters))),
        title=_short(declared.title),
        task=schema.task.value,
        licence=_short(declared.licence),
        citation=_short(" ".join(declared.citation.split())),
        source=_short(declared.source),
        origin=_origin(source, declared),
        agreement="" if declared.obtain is None else _short(declared.obtain.agreement),
        stands_for=_short(declared.stands_for),
        unit=_short(declared.unit),
        simulated=declared.simulated,
        inferred=schema.inferred,
        open=open_to_anybody(source, declared),
        column_count=len(schema.columns),
        columns=tuple(map(_column, _listed(schema))),
        label=_short(schema.label.name),
        by_class=_counts(schema.classes, declared.by_class),
        by_site=_counts(
            tuple(declared.by_site_class), tuple(map(sum, declared.by_site_class.values()))
        ),
        quasi_identifiers=tuple(map(_short, schema.quasi_identifiers)),
        sensitive=tuple(map(_short, schema.sensitive)),
        rules=tuple(_short(rule.name) for rule in schema.rules),
    )


def open_to_anybody(source: DatasetSource, declared: Declaration) -> bool:
    """True where anybody may have the rows; False in doubt.

    Simulated rows belong to nobody. What a plugin of this distribution reads from an installed
    package, or from files that ask for no agreement, is public. A third-party plugin without an
    `[obtain]` table may read anything, so that it must name where each file can be downloaded. A
    user's own table is never open.
    """
    if isinstance(source, OwnTable) or declared.schema.inferred:
        return False
    if declared.licence.strip().lower().startswith("closed"):
        return False
    obtain = declared.obtain
    if obtain is not None and obtain.agreement.strip().lower() != _NO_AGREEMENT:
        return False
    if declared.simulated or type(source).__module__.startswith(_BUILT_IN):
        return True
    return obtain is not None and bool(obtain.files) and all(file.url for file in obtain.files)


def _origin(source: DatasetSource, declared: Declaration) -> str:
    if isinstance(source, OwnTable):
        return "the user's own table"
    if declared.simulated:
        return "a simulator"
    if declared.obtain is not None:
        return _short(f"files of {declared.obtain.publisher} ({declared.obtain.page})")
    return "an installed package" + (f" (extra {declared.extra})" if declared.extra else "")


def _listed(schema: Schema) -> Sequence[Column]:
    features = schema.features[:_PIXELS] if schema.task is Task.IMAGE else schema.features
    others = [column for column in schema if column.role is not Role.FEATURE]
    return [*others, *features][:MOST_COLUMNS]


def _column(column: Column) -> ColumnCard:
    common: dict[str, Any] = {
        "name": _short(column.name),
        "role": column.role.value,
        "text": _short(column.description),
        "source": _short(column.source),
    }
    if isinstance(column, Numeric):
        kind = "whole number" if column.integer else "number"
        return ColumnCard(**common, kind=kind, low=column.low, high=column.high)
    categories = column.categories if isinstance(column, Categorical) else ()
    return ColumnCard(
        **common,
        kind="binary" if len(categories) == 2 else "category",
        categories=tuple(map(_short, categories[:MOST_CATEGORIES])),
        category_count=len(categories),
    )


def _counts(names: Sequence[str], rows: Sequence[int]) -> tuple[ClassCount, ...]:
    return tuple(
        ClassCount(_short(name), int(count)) for name, count in zip(names, rows, strict=False)
    )


def _short(text: str) -> str:
    return text if len(text) <= LARGEST_TEXT else f"{text[: LARGEST_TEXT - 1]}…"
