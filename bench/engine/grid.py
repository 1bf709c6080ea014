"""Grids: which cells to run. A grid is a TOML file, built in or given by the user."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, final

from bench.data.schema import parse_toml, read_text_file
from bench.data.splits import check_preset
from bench.errors import GridError, InputError, SchemaError, UnknownNameError, shortened
from bench.plugins import registry
from bench.results.records import Cell, Variant

BUILT_IN = ("smoke", "quick", "real-data", "core", "full", "tuning")
PAPER = "paper:"
"""Begins the names of the grids that make the tables of the documentation."""

_KEYS = {
    "name",
    "datasets",
    "methods",
    "ipc",
    "epsilon",
    "delta",
    "seeds",
    "metrics",
    "split",
    "split_seed",
    "split_seeds",
    "left_out",
}
_ENTRY_KEYS = {"name", "label", "parameters"}

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
"""ASCII only: `str.isdigit` accepts superscripts, which `int` refuses."""
_LARGEST_INTEGER = 2**63 - 1
"""Result tables hold integers of 64 bits."""
_LARGEST_IPC = 10**9
_MOST_CELLS = 1_000_000
_MOST_NESTING = 20
_LONGEST_NAME = 200


@final
@dataclass(frozen=True)
class LeftOut:
    """Cells of the product that a grid does not have, and why: an empty field means all."""

    because: str
    methods: tuple[str, ...] = ()
    """Names, which stand for all variants of a method."""
    datasets: tuple[str, ...] = ()
    ipc: tuple[int | None, ...] = ()
    """None is full size."""

    def holds(self, cell: Cell) -> bool:
        """Return whether a cell is one of these."""
        sized = cell.ipc is not None or cell.full_size
        return (
            (not self.methods or cell.method.name in self.methods)
            and (not self.datasets or cell.dataset.name in self.datasets)
            and (not self.ipc or (sized and cell.ipc in self.ipc))
        )


@final
@dataclass(frozen=True)
class Grid:
    """A product of datasets, methods, IPC, epsilon, seeds and splits. IPC None is full size."""

    name: str
    datasets: tuple[Variant, ...]
    methods: tuple[Variant, ...]
    ipc: tuple[int | None, ...] = (50, 100, 500, 1000)
    epsilon: tuple[float, ...] = (0.5, 1.0, 3.0, 10.0)
    delta: float | None = None
    """None chooses it for each dataset, see `default_delta`."""
    seeds: tuple[int, ...] = (0,)
    metrics: tuple[str, ...] = ()
    """As in `registry.select_metrics`; empty asks for those that are computed by default."""
    split: str = "default"
    split_seeds: tuple[int, ...] = (0,)
    """Seeds of the split: another part of the rows is for training under each."""
    left_out: tuple[LeftOut, ...] = ()
    """What of the product is not run, such as methods that cost too much on some datasets."""

    def __post_init__(self) -> None:
        if not self.datasets or not self.methods:
            raise GridError(f"grid {self.name!r} names no datasets or no methods")
        if not plain_name(self.name):
            raise GridError(
                f"grid name {shortened(self.name)}: the run directory is named after it, so it "
                f"must be a plain file name of at most {_LONGEST_NAME} characters"
            )
        for ipc in self.ipc:
            if ipc is not None and ipc < 1:
                raise GridError(f"IPC {ipc} is not a positive number of rows per class")
            if ipc is not None and ipc > _LARGEST_IPC:
                raise GridError(f"IPC {ipc} is too large; at most {_LARGEST_IPC} rows per class")
        for seed in (*self.seeds, *self.split_seeds):
            _check_range(seed)
        for seed in self.split_seeds:
            if seed < 0:
                raise GridError(f"split_seed {seed} is negative; expected 0 or more")
        for epsilon in self.epsilon:
            if not (epsilon > 0 and math.isfinite(epsilon)):
                raise GridError(f"epsilon {epsilon:g} is not a positive finite number")
        if self.delta is not None and not 0 < self.delta < 1:
            raise GridError(f"delta {self.delta:g} is not between 0 and 1")
        try:
            check_preset(self.split)
        except InputError as problem:
            raise GridError(str(problem)) from None
        for name, values in (
            ("ipc", self.ipc),
            ("epsilon", self.epsilon),
            ("seeds", self.seeds),
            ("split_seeds", self.split_seeds),
        ):
            if not values:
                raise GridError(f"grid {self.name!r}: {name} is empty")
        for kind, entries in (("method", self.methods), ("dataset", self.datasets)):
            labels = [entry.label for entry in entries]
            doubled = sorted({label for label in labels if labels.count(label) > 1})
            if doubled:
                raise GridError(
                    f"grid {self.name!r}: {kind} label {doubled[0]!r} is used twice; give variants "
                    "different labels"
                )
        cells = math.prod(
            map(
                len,
                (
                    *(self.datasets, self.methods, self.ipc, self.epsilon),
                    *(self.seeds, self.split_seeds),
                ),
            )
        )
        if cells > _MOST_CELLS:
            raise GridError(
                f"grid {self.name!r} has up to {cells} cells; at most {_MOST_CELLS} are supported: "
                "split it into several grids"
            )

    def cells(self, *, private_counts: bool = False, secure_noise: bool = False) -> list[Cell]:
        """Return all cells but those that the grid leaves out.

        An axis that a method does not use does not multiply its cells.
        """
        product = self._product(private_counts, secure_noise)
        return [cell for cell in product if not any(rule.holds(cell) for rule in self.left_out)]

    def counts_left_out(self) -> dict[str, int]:
        """Return how many cells of the product are left out for which reason."""
        counts = dict.fromkeys((rule.because for rule in self.left_out), 0)
        for cell in self._product() if self.left_out else ():
            rule = next((rule for rule in self.left_out if rule.holds(cell)), None)
            if rule is not None:
                counts[rule.because] += 1
        return {because: count for because, count in counts.items() if count}

    def _product(self, private_counts: bool = False, secure_noise: bool = False) -> list[Cell]:
        cells: dict[Cell, None] = {}
        deltas = {
            dataset: default_delta(dataset, private_counts) if self.delta is None else self.delta
            for dataset in self.datasets
        }
        for split_seed, dataset, method, seed in itertools.product(
            self.split_seeds, self.datasets, self.methods, self.seeds
        ):
            kind = registry.method_class(method.name)
            ipcs: Sequence[int | None] = self.ipc if kind.uses_ipc else (None,)
            spends: Sequence[float | None] = self.epsilon if kind.uses_budget else (None,)
            for ipc, epsilon in itertools.product(ipcs, spends):
                cell = Cell(
                    method=method,
                    dataset=dataset,
                    ipc=ipc,
                    full_size=ipc is None and kind.uses_ipc,
                    epsilon=epsilon,
                    delta=deltas[dataset],
                    seed=seed,
                    split=self.split,
                    split_seed=split_seed,
                    private_counts=private_counts and kind.uses_budget,
                    secure_noise=secure_noise,
                )
                cells[cell] = None
        return list(cells)

    def splits(self) -> list[Grid]:
        """Return one grid per seed of the split: these do not have the same training rows."""
        return [replace(self, split_seeds=(seed,)) for seed in dict.fromkeys(self.split_seeds)]

    def check_plugins(self) -> None:
        """Check that every name is known and every parameter fits, before anything runs."""
        for method in self.methods:
            registry.build_method(method.name, dict(method.parameters))
        for dataset in self.datasets:
            registry.build_source(dataset.name, dict(dataset.parameters))
        registry.select_metrics(self.metrics)
        for rule in self.left_out:
            for name in rule.methods:
                registry.method_class(name)
            for name in rule.datasets:
                registry.dataset_class(name)

    def narrowed(
        self,
        *,
        methods: Sequence[str] = (),
        datasets: Sequence[str] = (),
        ipc: Sequence[int | None] = (),
        epsilon: Sequence[float] = (),
        delta: float | None = None,
        seeds: Sequence[int] = (),
        metrics: Sequence[str] = (),
        split: str = "",
    ) -> Grid:
        """Return the grid with some of its axes replaced from the command line.

        A method or dataset named there is taken from the grid with all its variants, or with
        default parameters where the grid does not have it.
        """
        return replace(
            self,
            methods=_chosen("method", methods, self.methods),
            datasets=_chosen("dataset", datasets, self.datasets),
            ipc=tuple(ipc) or self.ipc,
            epsilon=tuple(epsilon) or self.epsilon,
            delta=self.delta if delta is None else delta,
            seeds=tuple(seeds) or self.seeds,
            metrics=tuple(metrics) or self.metrics,
            split=split or self.split,
        )

    def without(self, labels: Sequence[str]) -> Grid:
        """Return the grid without some datasets, by label."""
        kept = tuple(entry for entry in self.datasets if entry.label not in labels)
        if labels and not kept:
            raise GridError(f"grid {self.name!r}: none of its datasets is here")
        return replace(self, datasets=kept)


DEFAULT_DELTA = "min(1e-5, 1/(10 n))"
"""In words, for `run.json`: rows of the results have the number."""
LARGEST_DELTA = 1e-5
PRIVATE_COUNTS_DELTA = 1e-8
"""Delta where the number of rows is not public: below 1/(10 n) for up to ten million rows."""


def default_delta(dataset: Variant, private_counts: bool = False) -> float:
    """Return min(1e-5, 1/(10 n)) for a dataset with n declared rows.

    A mechanism that publishes one row in a million may have delta 1e-6 for each row: delta has to
    be well below 1/n. n is the declared number of all rows, a constant of the dataset's file, so
    that no row is read and training on a part or on all rows has the same delta. Where counts are
    private, delta is a constant: one that followed from n would tell n.
    """
    if private_counts:
        return PRIVATE_COUNTS_DELTA
    try:
        declared = registry.build_source(dataset.name, dict(dataset.parameters)).declare()
    except InputError:
        return LARGEST_DELTA  # its cells fail with the reason when the dataset is loaded
    return delta_for(sum(declared.by_class))


def delta_for(rows: int) -> float:
    """Return min(1e-5, 1/(10 n)): see `default_delta`."""
    return min(LARGEST_DELTA, 1 / (10 * max(1, rows)))


def plain_name(name: str) -> bool:
    """Return True for one component of a path: not hidden, no option, no control characters."""
    return (
        0 < len(name) <= _LONGEST_NAME
        and name[0] not in ".-"
        and not set(name) & {"/", "\\"}
        and name.isprintable()
    )


def paper_grids() -> tuple[str, ...]:
    """Return the names of the grids of papers, such as `paper:gats`."""
    folder = resources.files("bench.engine") / "grids" / "papers"
    stems = (file.name.removesuffix(".toml") for file in folder.iterdir())
    return tuple(f"{PAPER}{stem}" for stem in sorted(stems))


def built_in(name: str) -> bool:
    """Return True for a grid of this package; any other is a user's file."""
    return name in BUILT_IN or name in paper_grids()


def load_grid(name: str) -> Grid:
    """Return a built-in grid by name, or that of a TOML file."""
    folder = resources.files("bench.engine") / "grids"
    if name in BUILT_IN:
        return parse_grid((folder / f"{name}.toml").read_text(encoding="utf-8"), name)
    if name in paper_grids():
        stem = name.removeprefix(PAPER)
        return parse_grid((folder / "papers" / f"{stem}.toml").read_text(encoding="utf-8"), stem)
    path = Path(name)
    if path.suffix != ".toml":
        near = difflib.get_close_matches(name[:_LONGEST_NAME], paper_grids(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise GridError(
            f"unknown grid {shortened(name)}; {hint}built-in grids are {', '.join(BUILT_IN)}, "
            f"{', '.join(paper_grids())}, or name a .toml file"
        )
    try:
        text = read_text_file(path)
    except SchemaError as problem:
        raise GridError(f"grid file {problem}") from None
    return parse_grid(text, path.stem, origin=name)


def parse_grid(text: str, name: str, origin: str = "") -> Grid:
    """Read a grid from TOML; errors name the place."""
    where = origin or f"grid {name!r}"
    try:
        table = parse_toml(text, where)
    except SchemaError as problem:
        raise GridError(str(problem)) from None
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise GridError(f"{where}: {UnknownNameError('key', unknown[0], _KEYS)}")
    settings: dict[str, Any] = {}
    for key, read in (
        ("ipc", parse_ipc),
        ("epsilon", parse_float),
        ("seeds", parse_integer),
        ("split_seeds", parse_integer),
        ("metrics", str),
    ):
        if key in table:
            listed = _listed(where, key, table[key])
            settings[key] = tuple(_read(where, key, read, item) for item in listed)
    for key, read in (("delta", parse_float), ("split", str)):
        if key in table:
            settings[key] = _read(where, key, read, table[key])
    if "split_seed" in table:
        if "split_seeds" in table:
            raise GridError(f"{where}: both split_seed and split_seeds; give one of them")
        settings["split_seeds"] = (_read(where, "split_seed", parse_integer, table["split_seed"]),)
    if "left_out" in table:
        listed = _listed(where, "left_out", table["left_out"])
        settings["left_out"] = tuple(_left_out(where, item) for item in listed)
    return Grid(
        name=str(table.get("name", name)),
        datasets=_entries(where, "datasets", table.get("datasets", [])),
        methods=_entries(where, "methods", table.get("methods", [])),
        **settings,
    )


def _read(where: str, key: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except GridError as problem:
        raise GridError(f"{where}: {key}: {problem}") from None


def parse_ipc(value: Any) -> int | None:
    """Return a number of rows per class; None for `full`."""
    if value == "full":
        return None
    try:
        return parse_integer(value)
    except GridError as problem:
        raise GridError(f"{problem}, or `full`") from None


def parse_integer(value: Any) -> int:
    """Return a whole number of at most 64 bits, from TOML or from the command line."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _check_range(value)
    if not isinstance(value, str) or not _WHOLE_NUMBER.fullmatch(value):
        raise GridError(f"{shortened(value)} is not a whole number; expected one such as 50")
    digits = value.lstrip("+-0") or "0"
    if len(digits) > len(str(_LARGEST_INTEGER)):  # `int` refuses to read thousands of digits
        raise _too_large(value)
    return _check_range(-int(digits) if value.startswith("-") else int(digits))


def _check_range(number: int) -> int:
    if not -_LARGEST_INTEGER - 1 <= number <= _LARGEST_INTEGER:
        raise _too_large(number)
    return number


def _too_large(number: int | str) -> GridError:
    return GridError(
        f"{shortened(number)} does not fit into 64 bits; expected a whole number between "
        f"{-_LARGEST_INTEGER - 1} and {_LARGEST_INTEGER}"
    )


def parse_float(value: Any) -> float:
    """Return a number, from TOML or from the command line."""
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GridError(f"{shortened(value)} is not a number; expected one such as 0.5") from None


def _listed(where: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise GridError(f"{where}: {key} must be a list, got {shortened(value)}")
    return value


_LEFT_OUT_KEYS = {"because", "methods", "datasets", "ipc"}


def _left_out(where: str, item: Any) -> LeftOut:
    if not isinstance(item, Mapping) or set(item) - _LEFT_OUT_KEYS or not item.get("because"):
        raise GridError(
            f"{where}: an entry of left_out is a table with `because`, the reason in words, and "
            f"any of methods, datasets and ipc, all of which a cell must match; got "
            f"{shortened(item)}"
        )
    names = {}
    for key in ("methods", "datasets"):
        listed = _listed(where, f"left_out: {key}", item.get(key, []))
        names[key] = tuple(str(name) for name in listed)
    sizes = _listed(where, "left_out: ipc", item.get("ipc", []))
    ipc = tuple(_read(where, "left_out: ipc", parse_ipc, size) for size in sizes)
    if not (names["methods"] or names["datasets"] or ipc):
        raise GridError(
            f"{where}: an entry of left_out names neither methods, datasets nor ipc, which would "
            "leave out everything"
        )
    return LeftOut(because=str(item["because"]), ipc=ipc, **names)


def _entries(where: str, key: str, value: Any) -> tuple[Variant, ...]:
    return tuple(_entry(where, key, item) for item in _listed(where, key, value))


def _entry(where: str, key: str, item: Any) -> Variant:
    if isinstance(item, str):
        return Variant(item, item)
    if not isinstance(item, Mapping) or "name" not in item or set(item) - _ENTRY_KEYS:
        raise GridError(
            f"{where}: an entry of {key} is a name or a table with "
            f"{', '.join(sorted(_ENTRY_KEYS))}; got {shortened(item)}"
        )
    name, parameters = str(item["name"]), item.get("parameters", {})
    if not isinstance(parameters, Mapping):
        raise GridError(f"{where}: parameters of {shortened(name)} must be a table")
    try:
        for key, value in parameters.items():
            _check_value(key, value)
    except GridError as problem:
        raise GridError(f"{where}: parameters of {shortened(name)}: {problem}") from None
    shown = ",".join(f"{key}={value}" for key, value in sorted(parameters.items()))
    label = str(item.get("label", f"{name}({shown})" if shown else name))
    if not label.isprintable() or not 0 < len(label) <= _LONGEST_NAME:
        raise GridError(
            f"{where}: label {shortened(label)} of {shortened(name)}: give a `label` of at most "
            f"{_LONGEST_NAME} characters, without line breaks or control characters"
        )
    return Variant(name, label, tuple(sorted(parameters.items())))


def _check_value(name: str, value: Any, depth: int = 0) -> None:
    """Refuse a parameter that cannot be written to result tables and read back.

    TOML reads a date or a time where the quotes of a text were forgotten.
    """
    if isinstance(value, list) and depth < _MOST_NESTING:
        for item in value:
            _check_value(name, item, depth + 1)
    elif not isinstance(value, bool | int | float | str):
        name_of_kind = type(value).__name__
        words = {"list": f"list more than {_MOST_NESTING} deep", "dict": "table"}
        kind = words.get(name_of_kind, name_of_kind)
        raise GridError(
            f"{shortened(name)} is a {kind}; expected a number, a text, true, false or a list of "
            "these (a date or a time is written as a text, in quotes)"
        )


def _chosen(kind: str, wanted: Iterable[str], entries: tuple[Variant, ...]) -> tuple[Variant, ...]:
    wanted = tuple(wanted)
    if not wanted:
        return entries
    chosen: dict[Variant, None] = {}
    for name in wanted:
        matching = [entry for entry in entries if name in (entry.name, entry.label)]
        if not matching:
            # Raises with near matches where no such plugin exists.
            try:
                (registry.method_class if kind == "method" else registry.dataset_class)(name)
            except InputError as problem:
                raise GridError(str(problem)) from None
            matching = [Variant(name, name)]
        chosen.update(dict.fromkeys(matching))
    return tuple(chosen)
