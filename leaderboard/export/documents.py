"""Tables of Markdown documents, made from kept results (`bench.results.kept`).

A table is described where it stands, in a comment that readers do not see:

    <!-- table
    results = "results/gats-adult.parquet"
    rows = ["5", "100"]
    head = "N"
    columns = [
      { head = "paper", values = ["0.909", "0.913"] },
      { head = "ours", label = "mixup N={row}", ipc = "full", metric = "auroc" },
    ]
    -->
    | N | paper | ours |
    ...
    <!-- end of table -->

What stands between the two comments is replaced. `values` are typed: they are what a paper says.
Other columns select kept cells by `label`, `method`, `dataset`, `ipc`, `epsilon` and `split`, with
`{row}` replaced by the name of the row, and show a `metric` of these cells, or their
`eps_claimed`, `eps_proven` or `fit_seconds`: the mean, and in brackets the smallest and largest
where there are several. `percent = true` shows
percentages, `ratio_to = "label"` divides by the mean of the cells with that label. The results file
is looked for beside the document.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError
from bench.leaderboard.tables.show import ABSENT
from bench.results.kept import IDENTITY, read_kept

if TYPE_CHECKING:
    import pandas as pd

_TABLE = re.compile(r"<!-- table\n(?P<spec>.*?)\n-->\n(?P<made>.*?)<!-- end of table -->", re.S)
_TYPED = re.compile(
    r"^(?P<why><!-- typed: [^\n]*-->\n+)?\|[^\n]*\n(?P<rule>\|[ :|-]*-[ :|-]*\|)[ ]*$", re.M
)
_OF_CELLS: Final = ("eps_claimed", "eps_proven", "fit_seconds")
"""Numbers of a cell that can be shown as a metric is."""
_SELECTORS: Final = ("label", "method", "dataset", "ipc", "split")
_KNOWN: Final = frozenset(
    (*_SELECTORS, "epsilon", "metric", "head", "values", "percent", "digits", "ratio_to")
)


def filled(document: Path) -> str:
    """Return the text of a document with all of its tables made anew."""
    text = document.read_text(encoding="utf-8")

    def made(match: re.Match[str]) -> str:
        place = f"{document}, line {text.count(chr(10), 0, match.start()) + 1}"
        table = _made(_specification(match["spec"], place), document.parent, place)
        return f"<!-- table\n{match['spec']}\n-->\n{table}<!-- end of table -->"

    return _TABLE.sub(made, text)


def differing_lines(document: Path) -> list[int]:
    """Return the numbers of the lines that do not follow from the kept results."""
    now = document.read_text(encoding="utf-8").splitlines()
    then = filled(document).splitlines()
    if len(now) == len(then):
        return [at for at, pair in enumerate(zip(now, then, strict=True), 1) if pair[0] != pair[1]]
    same = 0
    while same < min(len(now), len(then)) and now[same] == then[same]:
        same += 1
    return [same + 1]


def typed_tables(document: Path) -> list[int]:
    """Return the numbers of the lines at which tables start that nobody has described.

    These were typed: nothing says whether their numbers follow from any results. A table under a
    line `<!-- typed: why -->` is one that no results can make, such as one of settings.
    """
    text = document.read_text(encoding="utf-8")
    generated = [(match.start(), match.end()) for match in _TABLE.finditer(text)]
    return [
        text.count("\n", 0, match.start("rule"))
        for match in _TYPED.finditer(text)
        if not match["why"]
        and not any(start <= match.start("rule") < end for start, end in generated)
    ]


def results_of(document: Path) -> list[Path]:
    """Return the files that the tables of a document are made from, each once."""
    text = document.read_text(encoding="utf-8")
    specs = (_specification(match["spec"], str(document)) for match in _TABLE.finditer(text))
    return list(dict.fromkeys(document.parent / str(spec["results"]) for spec in specs))


def _specification(text: str, place: str) -> Mapping[str, Any]:
    try:
        spec = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{place}: the table's description is not TOML: {problem}") from None
    missing = sorted({"results", "rows", "head", "columns"} - spec.keys())
    if missing:
        raise InputError(f"{place}: the table's description lacks {', '.join(missing)}")
    for column in spec["columns"]:
        unknown = sorted(column.keys() - _KNOWN)
        if unknown:
            raise InputError(
                f"{place}: a column has the unknown field {unknown[0]}; "
                f"expected some of {', '.join(sorted(_KNOWN))}"
            )
    return spec


def _made(spec: Mapping[str, Any], folder: Path, place: str) -> str:
    results = read_kept(folder / str(spec["results"]))
    rows, columns = [str(row) for row in spec["rows"]], spec["columns"]
    lines = [[str(spec["head"]), *(str(column["head"]) for column in columns)]]
    for at, row in enumerate(rows):
        cells = (_shown(results, column, row, at, place) for column in columns)
        lines.append([row, *cells])
    header, *body = ["| " + " | ".join(line) + " |\n" for line in lines]
    return header + "|" + "---|" * (len(columns) + 1) + "\n" + "".join(body)


def _shown(results: pd.DataFrame, column: Mapping[str, Any], row: str, at: int, place: str) -> str:
    """Return one cell of a table as text."""
    if "values" in column:
        values = column["values"]
        return str(values[at]) if at < len(values) else ABSENT
    chosen = {name: str(value).replace("{row}", row) for name, value in column.items()}
    numbers = _numbers(_selected(results, chosen, place), chosen, place)
    if "ratio_to" in chosen:
        reference = _selected(results, {**chosen, "label": chosen["ratio_to"]}, place)
        whole = _numbers(reference, chosen, place)
        numbers = [number / (sum(whole) / len(whole)) for number in numbers] if whole else []
    if not numbers:
        return ABSENT
    scale, unit = (100.0, "%") if column.get("percent") else (1.0, "")
    digits = int(column.get("digits", 0 if unit else 3))
    low, mean, high = (
        f"{scale * number:.{digits}f}"
        for number in (min(numbers), sum(numbers) / len(numbers), max(numbers))
    )
    spread = f" ({low} to {high})" if len(numbers) > 1 and low != high else ""
    return f"{mean}{unit}{spread}"


def _selected(results: pd.DataFrame, chosen: Mapping[str, str], place: str) -> pd.DataFrame:
    for name in _SELECTORS:
        if name in chosen:
            results = results[results[name] == chosen[name]]
    if "epsilon" in chosen:
        try:
            epsilon = float(chosen["epsilon"])
        except ValueError:
            raise InputError(
                f"{place}: epsilon is {chosen['epsilon']!r}; expected a number"
            ) from None
        results = results[results["eps_target"] == epsilon]
    return results


def _numbers(cells: pd.DataFrame, chosen: Mapping[str, str], place: str) -> Sequence[float]:
    if "metric" not in chosen:
        raise InputError(f"{place}: a column names neither `metric` nor `values`")
    if chosen["metric"] in _OF_CELLS:
        cells = cells.drop_duplicates([*IDENTITY, "ipc"])
        return [float(value) for value in cells[chosen["metric"]].dropna()]
    return [float(value) for value in cells.loc[cells["metric"] == chosen["metric"], "value"]]
