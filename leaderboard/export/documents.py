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
Other columns select kept cells by `label`, `method`, `dataset`, `ipc`, `epsilon`, `split`,
`split_seed` and `seed`, with `{row}` replaced by the name of the row, and show a `metric` of these
cells, or their `eps_claimed`, `eps_proven`, `fit_seconds`, `verdict` or number of `seeds` (those of
the split counted too): the mean, and in brackets the smallest and largest where there are several.
Several metrics in a list are shown as means with strokes between them. `percent = true` shows
percentages, `scale = 1e-6` multiplies, and `ratio_to = "label"` divides by the mean of the cells
with that label.

`minus = "label"` pairs each cell with the one of that label that has the same dataset, delta, split
and seeds (not size and epsilon, which some methods do not use: select these), and shows the mean
difference with the p-value of Student's paired t-test (two sides).

The results file is looked for beside the document. A table that names its `grid` may have none
yet: it stays as it was typed until they are kept, and counts as typed.

A block `<!-- finding` is a table of a published version, which `findings` makes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.errors import InputError
from bench.leaderboard.export import findings
from bench.leaderboard.tables.show import ABSENT
from bench.results.kept import IDENTITY, read_kept

if TYPE_CHECKING:
    import pandas as pd

_TABLE = re.compile(r"<!-- table\n(?P<spec>.*?)\n-->\n(?P<made>.*?)<!-- end of table -->", re.S)
_FINDING = re.compile(
    r"<!-- finding\n(?P<spec>.*?)\n-->\n(?P<made>.*?)<!-- end of finding -->", re.S
)
"""A finding of a published version, see `findings`."""
_TYPED = re.compile(
    r"^(?P<why><!-- typed: [^\n]*-->\n+)?\|[^\n]*\n(?P<rule>\|[ :|-]*-[ :|-]*\|)[ ]*$", re.M
)
_OF_CELLS: Final = ("eps_claimed", "eps_proven", "fit_seconds")
"""Numbers of a cell that can be shown as a metric is."""
_VERDICT: Final = "verdict"
_SEEDS: Final = "seeds"
_SELECTORS: Final = ("label", "method", "dataset", "ipc", "split")
_NUMBERS: Final = {"epsilon": "eps_target", "split_seed": "split_seed", "seed": "seed"}
"""Selectors whose columns hold numbers."""
_SHOWN: Final = ("head", "values", "metric", "percent", "scale", "digits", "ratio_to", "minus")
_KNOWN: Final = frozenset((*_SELECTORS, *_NUMBERS, *_SHOWN))
_PAIRED_BY: Final = tuple(
    name for name in IDENTITY if name not in ("label", "method", "parameters", "eps_target")
)
"""What two cells have in common if the same rows and seeds made both."""


def filled(document: Path) -> str:
    """Return the text of a document with all of its tables made anew."""
    text = document.read_text(encoding="utf-8")

    def made(match: re.Match[str]) -> str:
        place = f"{document}, line {text.count(chr(10), 0, match.start()) + 1}"
        spec = _specification(match["spec"], place)
        if _awaited(spec, document.parent):
            return match[0]
        table = _made(spec, document.parent, place)
        return f"<!-- table\n{match['spec']}\n-->\n{table}<!-- end of table -->"

    text = _TABLE.sub(made, text)
    return _FINDING.sub(_finder(document, text), text)


def _finder(document: Path, text: str) -> Callable[[re.Match[str]], str]:
    """Return what makes the findings of a document; every version is loaded once."""
    known: dict[Path, findings.Material] = {}

    def found(match: re.Match[str]) -> str:
        place = f"{document}, line {text.count(chr(10), 0, match.start()) + 1}"
        spec = _fields(match["spec"], place, {"results", "kind"})
        directory = document.parent / str(spec["results"])
        made = findings.made(str(spec["kind"]), directory, document, place, known)
        # A blank line: Markdown takes a paragraph after a comment for a part of it.
        return f"<!-- finding\n{match['spec']}\n-->\n\n{made}\n<!-- end of finding -->"

    return found


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
    generated = [
        (match.start(), match.end())
        for match in _TABLE.finditer(text)
        if not _awaited(_specification(match["spec"], str(document)), document.parent)
    ]
    generated += [(match.start(), match.end()) for match in _FINDING.finditer(text)]
    return [
        text.count("\n", 0, match.start("rule"))
        for match in _TYPED.finditer(text)
        if not match["why"]
        and not any(start <= match.start("rule") < end for start, end in generated)
    ]


def results_of(document: Path) -> list[Path]:
    """Return the files that the tables of a document are made from, each once."""
    return list(
        dict.fromkeys(
            document.parent / str(spec["results"])
            for spec in specifications(document)
            if not _awaited(spec, document.parent)
        )
    )


def awaited_results(document: Path) -> dict[Path, str]:
    """Return the files that are not there yet, with the grid that each of them is made by."""
    return {
        document.parent / str(spec["results"]): str(spec["grid"])
        for spec in specifications(document)
        if _awaited(spec, document.parent)
    }


def specifications(document: Path) -> list[Mapping[str, Any]]:
    """Return the descriptions of the tables of a document, in order."""
    text = document.read_text(encoding="utf-8")
    return [_specification(match["spec"], str(document)) for match in _TABLE.finditer(text)]


def _awaited(spec: Mapping[str, Any], folder: Path) -> bool:
    return "grid" in spec and not (folder / str(spec["results"])).exists()


def _fields(text: str, place: str, needed: Set[str]) -> Mapping[str, Any]:
    try:
        spec = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{place}: the table's description is not TOML: {problem}") from None
    missing = sorted(needed - spec.keys())
    if missing:
        raise InputError(f"{place}: the table's description lacks {', '.join(missing)}")
    return spec


def _specification(text: str, place: str) -> Mapping[str, Any]:
    spec = _fields(text, place, {"results", "rows", "head", "columns"})
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
    if isinstance(column.get("metric"), list):
        means = ({**column, "metric": metric, "mean": True} for metric in column["metric"])
        return " / ".join(_shown(results, each, row, at, place) for each in means)
    chosen = {name: str(value).replace("{row}", row) for name, value in column.items()}
    cells = _selected(results, chosen, place)
    if chosen.get("metric") == _VERDICT:
        return ", ".join(sorted(set(cells[_VERDICT]))) or ABSENT
    if chosen.get("metric") == _SEEDS:
        return str(len(cells[["seed", "split_seed"]].drop_duplicates())) if len(cells) else ABSENT
    scale, unit = (100.0, "%") if column.get("percent") else (float(column.get("scale", 1)), "")
    digits = int(column.get("digits", 0 if unit else 3))
    if "minus" in chosen:
        other = _selected(results, {**chosen, "label": chosen["minus"]}, place)
        differences = _differences(cells, other, chosen["metric"])
        return _tested(differences, scale, digits, unit)
    numbers = _numbers(cells, chosen, place)
    if "ratio_to" in chosen:
        reference = _selected(results, {**chosen, "label": chosen["ratio_to"]}, place)
        whole = _numbers(reference, chosen, place)
        numbers = [number / (sum(whole) / len(whole)) for number in numbers] if whole else []
    if not numbers:
        return ABSENT
    low, mean, high = (
        f"{scale * number:.{digits}f}"
        for number in (min(numbers), sum(numbers) / len(numbers), max(numbers))
    )
    wide = len(numbers) > 1 and low != high and "mean" not in column
    return f"{mean}{unit}" + (f" ({low} to {high})" if wide else "")


def _differences(cells: pd.DataFrame, other: pd.DataFrame, metric: str) -> Sequence[float]:
    """Return the differences of one metric between cells that have the same rows and seeds."""
    # The other may use no budget or no size of its own: these do not pair, the rest does.
    pairs = cells[cells["metric"] == metric].merge(
        other[other["metric"] == metric], on=[*_PAIRED_BY], suffixes=("", "_other")
    )
    return [float(value) for value in pairs["value"] - pairs["value_other"]]


def _tested(differences: Sequence[float], scale: float, digits: int, unit: str) -> str:
    """Return the mean difference and the p-value of its paired t-test."""
    from scipy import stats

    if not differences:
        return ABSENT
    mean = f"{scale * sum(differences) / len(differences):+.{digits}f}{unit}"
    if len(differences) < 2 or len(set(differences)) == 1:
        return mean
    p_value = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return f"{mean} (p = {p_value:.2g})"


def _selected(results: pd.DataFrame, chosen: Mapping[str, str], place: str) -> pd.DataFrame:
    for name in _SELECTORS:
        if name in chosen:
            results = results[results[name] == chosen[name]]
    for name, column in _NUMBERS.items():
        if name in chosen:
            try:
                wanted = float(chosen[name])
            except ValueError:
                raise InputError(
                    f"{place}: {name} is {chosen[name]!r}; expected a number"
                ) from None
            results = results[results[column] == wanted]
    return results


def _numbers(cells: pd.DataFrame, chosen: Mapping[str, str], place: str) -> Sequence[float]:
    if "metric" not in chosen:
        raise InputError(f"{place}: a column names neither `metric` nor `values`")
    if chosen["metric"] in _OF_CELLS:
        cells = cells.drop_duplicates([*IDENTITY, "ipc"])
        return [float(value) for value in cells[chosen["metric"]].dropna()]
    return [float(value) for value in cells.loc[cells["metric"] == chosen["metric"], "value"]]
