"""Declarations with many columns of one kind: pixels, genes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench import Declaration, SchemaError, declaration_from_table, read_toml


def declare_alike(path: Path, names: Iterable[str], template: str) -> Declaration:
    """The TOML file at `path`, with one column for each name as its table `template` describes."""
    table = read_toml(path)
    if template not in table:
        raise SchemaError(f"{path}: lacks the key {template!r}")
    alike = dict.fromkeys(names, table[template])
    return declaration_from_table({**table, "columns": {**alike, **table["columns"]}}, str(path))
