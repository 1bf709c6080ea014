"""The LaTeX tables: complete, escaped, and bold where it may be said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.export.latex import escape, to_latex
from bench.leaderboard.ranking.inference import difference, from_interval, from_seeds
from bench.leaderboard.ranking.rows import aggregate
from bench.leaderboard.tables.load import load_results


@pytest.fixture
def latex(tmp_path: Path) -> Callable[[Any], str]:
    """The tables of a run."""
    return lambda run: to_latex(aggregate(load_results([run.write(tmp_path)]))[0])


def _line(text: str, method: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{method} & ")]
    return [cell.strip() for cell in line.removesuffix(r"\\").split(" & ")]


def test_one_table_a_dataset_with_a_column_an_epsilon(mixed_run: Any, latex: Any) -> None:
    text = latex(mixed_run)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    first, second = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    assert r"Method & Verdict & $\varepsilon = 1$ & $\varepsilon = 10$ \\" in first
    assert _line(first, "real") == ["real", "non{-}private", *[r"0.905 $\pm$ 0.007"] * 2]
    assert _line(first, "ldpdc") == ["ldpdc", "sound", *[r"\textbf{0.800} $\pm$ 0.000"] * 2]
    assert _line(first, "pate")[:3] == ["pate", "unproven", r"0.600 $\pm$ 0.000"]
    assert _line(first, "picky") == ["picky", "no verdict", "--", "--"]
    # One of its two cells failed.
    assert _line(second, "ldpdc")[2] == r"\textbf{0.700}$^\dagger$"
    columns = {line.count(" & ") for line in text.splitlines() if line.endswith(r" \\")}
    assert columns == {3}


def test_bold_are_the_best_and_those_tied_with_it(run: Any, latex: Any, unproven: Any) -> None:
    # Intervals of +-0.02 are standard errors of 0.0102: of a difference 0.0144, at 0.05 +-0.0283.
    for label, value in (("top", 0.90), ("tied", 0.89), ("below", 0.80), ("unsound", 0.95)):
        run.add(label, value, **(unproven if label == "unsound" else {}))
    text = latex(run)
    bold = {name: r"\textbf" in _line(text, name)[2] for name in ("top", "tied", "below")}
    assert bold == {"top": True, "tied": True, "below": False}
    assert r"\textbf" not in _line(text, "unsound")[2]
    # Those without a proof follow after a separate rule.
    assert text.index("below &") < text.rindex(r"\midrule") < text.index("unsound &")


def test_without_an_interval_only_the_best_is_bold(run: Any, latex: Any) -> None:
    for label, error in (("a", 0.3), ("b", 0.1), ("c", 0.1)):
        run.score(run.add(label), "error", error, direction="lower")
    text = latex(run)
    assert [r"\textbf" in _line(text, name)[2] for name in "abc"] == [False, True, True]


def test_names_are_escaped(run: Any, latex: Any) -> None:
    evil = r"\input{/etc/passwd} <script>alert(1)</script> 50% & $x_1^2$ # ~ \\ ^^5c --"
    run.add(evil, 0.5, dataset=evil, verdict=evil)
    text = latex(run)
    assert "\\input" not in text
    assert "^^" not in text
    assert "<script>" not in text
    assert r"\textless{}script\textgreater{}alert(1)" in text
    body = next(line for line in text.splitlines() if line.startswith(r"\textbackslash{}input"))
    assert len(re.findall(r"(?<!\\)&", body)) == 2
    assert not re.search(r"(?<!\\)[%#_]", body)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a\nb\x1b", "a b"),
        ("ε = ∞", r"$\varepsilon$ = $\infty$"),
        ("naïve", "naïve"),
        ("日", r"\texttt{U+65E5}"),
        ("{}", r"\{\}"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_no_rows(run: Any, latex: Any) -> None:
    assert r"\begin" not in latex(run)


def test_the_test_is_that_of_welch() -> None:
    from scipy import stats

    first, second = [0.61, 0.65, 0.7, 0.62], [0.5, 0.58, 0.51]
    expected = stats.ttest_ind(first, second, equal_var=False)
    parts = [from_seeds(float(stats.tstd(values)), len(values)) for values in (first, second)]
    gap = sum(first) / 4 - sum(second) / 3
    found = difference(gap, parts, 0.05)
    assert found is not None
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    # Known variances: a normal. Two intervals of +-0.02 and a difference of two standard errors.
    known = [from_interval(-0.02, 0.02)] * 2
    error = (2 * known[0].variance) ** 0.5
    normal = difference(2 * error, known, 0.05)
    assert normal is not None
    assert normal.p == pytest.approx(2 * stats.norm.sf(2))
    assert difference(0.1, [], 0.05) is None
