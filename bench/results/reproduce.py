"""How to make a cell again, from its row in the results alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from bench.results.records import CellRow

USUAL_SPLIT = "default"
USUAL_SPLIT_SEED = 0
"""What a grid has where it says nothing: no option of the command changes them."""

_DEEPEST = 20

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@final
@dataclass(frozen=True)
class Repeat:
    """How to make a cell again."""

    command: str
    grid: str
    """Content of `cell.toml`; empty where the command says everything."""


def repeat(row: CellRow) -> Repeat:
    """Return the command that makes the cell again, with a grid file where options cannot."""
    if row.attack:
        return Repeat(shlex.join(_audit_command(row)), "")
    plain = (
        row.label == row.method
        and row.dataset == row.dataset_name
        and not json_object(row.parameters)
        and not json_object(row.dataset_parameters)
        and row.split == USUAL_SPLIT
        and row.split_seed == USUAL_SPLIT_SEED
    )
    options = ["--out", "runs/again"]
    if not row.study_only:
        options.append("--secure-noise")
    if row.private_counts:
        options.append("--private-counts")
    if not plain:
        return Repeat(shlex.join(["bench", "run", "--grid", "cell.toml", *options]), _grid(row))
    # The smoke grid has no variants of a method that its name would bring along.
    axes = ["--grid", "smoke", "--methods", row.method, "--datasets", row.dataset]
    if row.ipc is not None or row.full_size:
        axes += ["--ipc", "full" if row.ipc is None else str(row.ipc)]
    if row.eps_target is not None:
        axes += ["--eps", repr(row.eps_target)]
    axes += ["--delta", repr(row.delta)]
    axes += ["--seeds", str(row.seed)]
    if metrics := _metrics(row):
        axes += ["--metrics", ",".join(metrics)]
    return Repeat(shlex.join(["bench", "run", *axes, *options]), "")


def _metrics(row: CellRow) -> list[str]:
    """Metrics that scored the cell; `none` where it was made without any, empty where unknown."""
    return list(json_object(row.metrics)) or (["none"] if row.status == "ok" else [])


def _audit_command(row: CellRow) -> list[str]:
    command = ["bench", "audit", row.method, "--dataset", row.dataset_name or row.dataset]
    if row.eps_target is not None:
        command += ["--eps", repr(row.eps_target)]
    command += ["--attack", row.attack, "--trials", str(row.trials)]
    if row.ipc is not None or row.full_size:
        command += ["--ipc", "full" if row.ipc is None else str(row.ipc)]
    command += ["--delta", repr(row.delta), "--seed", str(row.seed)]
    for name, value in json_object(row.parameters).items():
        command += ["--parameters", f"{name}={_toml(value)}"]
    return [*command, "--out", "runs/again"]


def json_object(document: str) -> dict[str, Any]:
    """Return the JSON object in a column of a result row."""
    try:
        parsed = json.loads(document or "{}")
    except (ValueError, RecursionError):
        return {"unreadable": document}
    if _deeper(parsed, _DEEPEST):
        return {"unreadable": document}
    return parsed if isinstance(parsed, dict) else {"value": parsed}


def _deeper(value: Any, levels: int) -> bool:
    """True for objects within objects beyond so many levels: no parameter is, a trap may be."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in inner)


def _grid(row: CellRow) -> str:
    lines: dict[str, Any] = {
        "datasets": [_entry(row.dataset_name or row.dataset, row.dataset, row.dataset_parameters)],
        "methods": [_entry(row.method, row.label, row.parameters)],
    }
    if row.ipc is not None or row.full_size:
        lines["ipc"] = ["full" if row.ipc is None else row.ipc]
    if row.eps_target is not None:
        lines["epsilon"] = [row.eps_target]
    lines |= {"delta": row.delta, "seeds": [row.seed]}
    lines |= {"split": row.split, "split_seed": row.split_seed}
    if metrics := _metrics(row):
        lines["metrics"] = metrics
    return "".join(f"{name} = {_toml(value)}\n" for name, value in lines.items())


def _entry(name: str, label: str, parameters: str) -> dict[str, Any]:
    given = json_object(parameters)
    return {"name": name, "label": label, **({"parameters": given} if given else {})}


def _toml(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelled like that in TOML as well
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        items = (f"{_toml_key(str(key))} = {_toml(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # TOML escapes as JSON does, but for one character and pairs of surrogates.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml(key)
