"""What is publicly known about a table before anybody looks at its rows.

A schema is a data dictionary: kinds, bounds and categories are declared, with the source that
justifies them, and never read off the private rows. Everything that scales, encodes, bins or
clips in the harness takes its constants from here, so that preprocessing cannot leak.
"""

from __future__ import annotations

import enum
import math
import re
import tomllib
from abc import ABC
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.errors import SchemaError, shortened

_SMALLEST_SPAN = 1e-300
"""Smaller spans overflow when something is divided by them."""


class Role(enum.StrEnum):
    """What a column is for."""

    FEATURE = "feature"
    TARGET = "target"
    TIME = "time"
    EVENT = "event"
    SITE = "site"


class Task(enum.StrEnum):
    """What is predicted from the rows."""

    CLASSIFICATION = "classification"
    SURVIVAL = "survival"
    IMAGE = "image"


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One declared column. `source` says where its bounds or categories come from."""

    name: str
    role: Role = Role.FEATURE
    description: str = ""
    source: str = ""
    fill: float | str | None = None
    """Public value that replaces a missing one; None means that missing values are an error."""
    decimal: bool = field(default=False, repr=False)
    """True where the original writes whole numbers with a decimal point, as in 1.0; a matter of
    form, for tables that are given away."""


@final
@dataclass(frozen=True, kw_only=True)
class Numeric(Column):
    """A number between two public bounds."""

    low: float
    high: float
    integer: bool = False
    missing: bool = field(default=False, repr=False)
    """True where an entry can be missing, which is then part of what is encoded and released."""

    def __post_init__(self) -> None:
        if self.missing and self.role is not Role.FEATURE:
            raise SchemaError(
                f"column {self.name!r}: missing = true is for features; a row without its "
                f"{self.role.value} is not in the table"
            )
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise SchemaError(
                f"column {self.name!r}: bounds [{self.low}, {self.high}] must be finite, low < high"
            )
        if not _SMALLEST_SPAN < self.high - self.low < math.inf:
            raise SchemaError(
                f"column {self.name!r}: bounds [{self.low}, {self.high}] are too close or too far "
                "apart to scale by; use another unit"
            )
        if self.fill is not None and not (
            isinstance(self.fill, int | float)
            and not isinstance(self.fill, bool)
            and math.isfinite(self.fill)
        ):
            raise SchemaError(
                f"column {self.name!r}: fill {shortened(self.fill)} is not a finite number"
            )


@final
@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of a public list of categories. A binary column is one with two categories."""

    categories: tuple[str, ...]
    ordered: bool = field(default=False, repr=False)
    """True where the order of the categories means something, as in codes of severity."""

    def __post_init__(self) -> None:
        if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):
            raise SchemaError(
                f"column {self.name!r}: needs two or more distinct categories, "
                f"got {list(self.categories)}"
            )
        if self.fill is not None and str(self.fill) not in self.categories:
            raise SchemaError(
                f"column {self.name!r}: fill {shortened(self.fill)} is not one of its categories"
            )

    @property
    def binary(self) -> bool:
        """True when one number is enough to encode the column."""
        return len(self.categories) == 2


def presence_of(column: Numeric) -> str:
    """Return the name under which it is encoded whether an entry of this column is present."""
    return f"{column.name} (present)"


_COMPARISON = re.compile(r"^\s*([^<>=!]+?)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*$")


@final
@dataclass(frozen=True)
class Comparison:
    """`left op right`, where left is a column and right a column, a number or a category."""

    left: str
    operator: str
    right: str

    @classmethod
    def parse(cls, text: str) -> Comparison:
        """Read `pnodes <= examined` or `sex == male`."""
        match = _COMPARISON.match(text)
        if match is None:
            raise SchemaError(f"rule {text!r}: expected `column <op> column-or-value`")
        return cls(*match.groups())

    def present(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return True where both sides of the comparison are present."""
        # Column by column: rules are asked of pools again and again, and a reduction over two
        # columns of a frame takes several times as long.
        present = np.ones(len(frame), dtype=bool)
        for name in (self.left, self.right):
            if name in frame.columns:
                present &= frame[name].notna().to_numpy(dtype=bool)
        return present

    def holds(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return one boolean per row."""
        left: pd.Series[Any] = frame[self.left]
        right: Any = frame[self.right] if self.right in frame.columns else self.right
        if isinstance(right, str) and pd.api.types.is_numeric_dtype(left):
            right = float(right)
        comparisons = {
            "<": left.lt,
            "<=": left.le,
            ">": left.gt,
            ">=": left.ge,
            "==": left.eq,
            "!=": left.ne,
        }
        return comparisons[self.operator](right).to_numpy(dtype=bool)


@final
@dataclass(frozen=True)
class Rule:
    """A clinical consistency rule: where all of `when` hold, `then` must hold."""

    name: str
    then: Comparison
    when: tuple[Comparison, ...] = ()

    def broken(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return True for the rows that break the rule; a missing value breaks nothing."""
        relevant = self.then.present(frame)
        for condition in self.when:
            relevant &= condition.holds(frame)
        return relevant & ~self.then.holds(frame)


@final
@dataclass(frozen=True)
class Schema:
    """The public description of one table."""

    columns: tuple[Column, ...]
    task: Task
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    image_shape: tuple[int, int, int] | None = None
    inferred: bool = False
    """True when bounds or categories were read off the rows, which is charged as non-private."""
    _by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = Counter(column.name for column in self.columns)
        doubled = sorted(name for name, count in names.items() if count > 1)
        if doubled:
            raise SchemaError(f"columns declared twice: {', '.join(doubled)}")
        for column in self.columns:
            if isinstance(column, Numeric) and column.missing and presence_of(column) in names:
                raise SchemaError(
                    f"column {column.name!r}: missing = true needs the name "
                    f"{presence_of(column)!r}, which another column has; rename that one"
                )
        object.__setattr__(self, "_by_name", {column.name: column for column in self.columns})
        self._check_roles()
        for listed in (self.quasi_identifiers, self.sensitive):
            for name in listed:
                self[name]
        for rule in self.rules:
            for comparison in (rule.then, *rule.when):
                self[comparison.left]

    def _check_roles(self) -> None:
        needed = (Role.TIME, Role.EVENT) if self.task is Task.SURVIVAL else (Role.TARGET,)
        for role in needed:
            count = len(self.with_role(role))
            if count != 1:
                raise SchemaError(
                    f"a {self.task.value} schema needs exactly one {role.value} column, has {count}"
                )
        if not isinstance(self.label, Categorical):
            raise SchemaError(f"column {self.label.name!r}: the label must be categorical")
        if self.task is Task.SURVIVAL and not (
            isinstance(self.time, Numeric) and self.label.binary
        ):
            raise SchemaError("a survival schema needs a numeric time and a two-category event")
        if not self.features:
            raise SchemaError("the schema declares no feature column")
        if self.task is Task.IMAGE:
            shape = self.image_shape
            if shape is None or math.prod(shape) != len(self.features):
                raise SchemaError(
                    f"image_shape {shape} does not match {len(self.features)} pixel columns"
                )

    def __getitem__(self, name: str) -> Column:
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(
                f"no column {name!r} in the schema; declared: {', '.join(self._by_name)}"
            ) from None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def with_role(self, role: Role) -> tuple[Column, ...]:
        """Return the columns of one role, in declared order."""
        return tuple(column for column in self.columns if column.role is role)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns a model may read."""
        return self.with_role(Role.FEATURE)

    @property
    def label(self) -> Categorical:
        """The target of a classification, or the event indicator of a survival task."""
        role = Role.EVENT if self.task is Task.SURVIVAL else Role.TARGET
        column = self.with_role(role)[0]
        if not isinstance(column, Categorical):
            raise SchemaError(f"column {column.name!r}: the label must be categorical")
        return column

    @property
    def time(self) -> Numeric | None:
        """The time column of a survival task."""
        columns = self.with_role(Role.TIME)
        return columns[0] if columns and isinstance(columns[0], Numeric) else None

    @property
    def site(self) -> Categorical | None:
        """The site column, where the table comes from several places."""
        columns = self.with_role(Role.SITE)
        return columns[0] if columns and isinstance(columns[0], Categorical) else None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes (for survival: censored first, event second)."""
        return self.label.categories


def schema_from_table(table: Mapping[str, Any]) -> Schema:
    """Build a schema from a parsed TOML table; see the TOML files of `datasets/` for examples."""
    try:
        columns = tuple(_column(name, entry) for name, entry in table["columns"].items())
        shape = table.get("image_shape")
        return Schema(
            columns=columns,
            task=Task(table["task"]),
            quasi_identifiers=tuple(table.get("quasi_identifiers", ())),
            sensitive=tuple(table.get("sensitive", ())),
            rules=tuple(
                Rule(
                    name=rule["name"],
                    then=Comparison.parse(rule["then"]),
                    when=tuple(Comparison.parse(text) for text in rule.get("when", ())),
                )
                for rule in table.get("rules", ())
            ),
            image_shape=None if shape is None else (shape[0], shape[1], shape[2]),
            inferred=bool(table.get("inferred", False)),
        )
    except KeyError as missing:
        raise SchemaError(f"schema lacks the key {missing}") from None
    except ValueError as wrong:
        raise SchemaError(f"schema: {wrong}") from None


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    if not isinstance(entry, Mapping):
        raise SchemaError(f"column {name!r}: expected a table, got {shortened(entry)}")
    common: dict[str, Any] = {
        "name": name,
        "role": Role(entry.get("role", "feature")),
        "description": entry.get("description", ""),
        "source": entry.get("source", ""),
        "fill": entry.get("fill"),
        "decimal": bool(entry.get("decimal", False)),
    }
    match entry["kind"]:
        case "numeric":
            return Numeric(
                **common,
                low=_bound(name, "low", entry["low"]),
                high=_bound(name, "high", entry["high"]),
                integer=bool(entry.get("integer", False)),
                missing=bool(entry.get("missing", False)),
            )
        case "categorical":
            return Categorical(
                **common,
                categories=_categories(name, entry["categories"]),
                ordered=bool(entry.get("ordered", False)),
            )
        case "binary":
            listed = entry.get("categories", ["0", "1"])
            return Categorical(**common, categories=_categories(name, listed))
        case other:
            raise SchemaError(
                f"column {name!r}: kind {other!r} is not one of numeric, categorical, binary"
            )


def _bound(name: str, key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"column {name!r}: {key} must be a number, got {shortened(value)}"
        ) from None


def _categories(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SchemaError(f"column {name!r}: categories must be a list, got {shortened(value)}")
    return tuple(map(str, value))


_LARGEST_TOML = 2 << 20
"""Bytes. The largest files are schemas of wide tables; parsing takes some seconds per megabyte."""


_LONG_KEY = re.compile(r"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){30}""")
"""A dotted key of more than 30 parts: TOML's reader takes quadratic time for them."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a malformed one is an input error with file and line."""
    return parse_toml(read_text_file(path), str(path))


def read_text_file(path: Path) -> str:
    """Return the text of a regular file of bounded size."""
    try:
        if path.exists() and not path.is_file():
            raise SchemaError(f"{path}: not a regular file")
        with path.open("rb") as file:
            content = file.read(_LARGEST_TOML + 1)
        if len(content) > _LARGEST_TOML:
            raise SchemaError(f"{path}: larger than {_LARGEST_TOML >> 20} MiB")
        return content.decode("utf-8")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SchemaError(f"{path}: cannot be read ({reason})") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Read TOML; what is wrong with it is said in one line that begins with `where`."""
    if _LONG_KEY.search(text):
        raise SchemaError(f"{where}: a dotted key has more than 30 parts; no such file needs them")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SchemaError(f"{where}: not valid TOML ({problem})") from None
    except RecursionError:
        raise SchemaError(f"{where}: arrays or tables are nested too deep to be read") from None
    except ValueError as problem:  # Python reads no integer of more than 4,300 digits
        raise SchemaError(f"{where}: a number cannot be read ({problem})") from None
