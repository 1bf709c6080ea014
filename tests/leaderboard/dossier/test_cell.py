"""The page of a cell."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bench.engine.cell import blank_row
from bench.engine.grid import Grid, load_grid, parse_float, parse_grid, parse_integer
from bench.leaderboard.dossier.cell import cell_report, four_epsilons
from bench.results.records import AuditSpec, Cell, CellRow, ScoreRow, Variant
from bench.results.reproduce import repeat
from bench.tracking.fields import metrics_of, parameters_of
from tests.results.test_audits import audit_outcome

CELL = Cell(
    method=Variant("ldpdc", "ldpdc"),
    dataset=Variant("gbsg2", "gbsg2"),
    ipc=50,
    full_size=False,
    epsilon=1.0,
    delta=1e-5,
    seed=3,
    split="default",
    split_seed=0,
)


def row(cell: Cell = CELL, **changes: object) -> CellRow:
    made = replace(
        blank_row(cell, "k" * 8, None),
        status="ok",
        verdict="sound",
        verdict_reason="epsilon 0.9 at delta 1e-05 by PLD",
        eps_proven=0.9,
        accountant="PLD",
        metrics='{"auroc": "h", "ks": "h"}',
        finished_at="2026-01-02T03:04:05+00:00",
        fit_seconds=1234.5,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def score(metric: str, value: float | None, **changes: object) -> ScoreRow:
    made = ScoreRow("k" * 8, metric, value, None, None, "higher", "utility", "")
    return replace(made, **changes)  # type: ignore[arg-type]


class _Reader(HTMLParser):
    """Collects tags and text, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += " " if tag in ("td", "th", "h1", "h2", "p", "dt", "dd", "summary") else ""

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    reader.text = " ".join(reader.text.split())
    return reader


def test_the_page_says_what_the_verdict_and_the_scores_are() -> None:
    scores = [
        score("auroc", 0.81234, low=0.8, high=0.82, limit=0.9),
        score("tstr", 0.95, limit=0.9),
        score("dcr", 0.5, family="privacy", direction="lower", limit=0.4, remark="weak: few rows"),
        score("b", None, reason="the release is a model, not rows"),
        score("a", None, reason="the release is a model, not rows"),
    ]
    page = read(cell_report(row(), scores))
    assert "ldpdc on gbsg2, ipc 50, epsilon 1, seed 3" in page.text
    assert "sound study only epsilon 0.9 at delta 1e-05 by PLD" in page.text
    assert "auroc ↑ 0.812 [0.800, 0.820] 0.900 not met" in page.text
    assert "tstr ↑ 0.950 – 0.900 met" in page.text  # noqa: RUF001 (an en dash is meant)
    assert "dcr ↓ 0.500 – 0.400 not met weak: few rows" in page.text  # noqa: RUF001
    assert "2 without a value the release is a model, not rows a, b" in page.text
    assert "Fit 1,234 s" in page.text
    assert "Last lines" not in page.text
    assert page.tags.isdisjoint({"script", "link", "img", "iframe"})


def test_nothing_in_a_row_becomes_markup() -> None:
    bad = "<script>alert(1)</script>&\"'"
    page = cell_report(
        row(
            label=bad, reason=bad, verdict=bad, verdict_reason=bad, warnings=bad, log_tail=bad,
            notes=json.dumps({bad: bad}), status="error", claim_source=bad, eps_claimed=1.0,
        ),
        [score(bad, 1.0, remark=bad), score("x", None, reason=bad), score("y", 1.0, family=bad)],
    )  # fmt: skip
    assert "<script" not in page
    assert read(page).text.count("<script>alert(1)</script>") > 10


def test_a_failed_cell_shows_its_output() -> None:
    page = read(cell_report(row(status="error", reason="ValueError: no", log_tail="line 7"), []))
    assert "status error: ValueError: no" in page.text
    assert "Where it failed line 7" in page.text


def test_the_four_epsilons_are_said_in_words() -> None:
    target, claimed, proven, audited = four_epsilons(row())
    assert (target.value, proven.value) == (1.0, 0.9)
    assert "by PLD" in proven.meaning
    assert (claimed.value, claimed.meaning) == (None, "The method claims no protection.")
    assert audited.value is None and audited.meaning.startswith("Not audited")
    unbounded = four_epsilons(row(eps_proven=math.inf))[2]
    assert unbounded.value == math.inf and unbounded.meaning.startswith("No bound")
    unfinished = four_epsilons(row(eps_proven=None))[2]
    assert unfinished.meaning.startswith("Not computed")


def _cells(made: CellRow) -> list[Cell]:
    """The cells that the printed command would run, read as the command line reads it."""
    said = repeat(made)
    words = shlex.split(said.command)
    assert words[:2] == ["bench", "run"]
    flags = {word for word in words if word in ("--secure-noise", "--private-counts")}
    rest = [word for word in words[2:] if word not in flags]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    name = options.pop("--grid")
    grid: Grid = parse_grid(said.grid, "cell") if name == "cell.toml" else load_grid(name)
    assert options.pop("--out")
    ipc = options.get("--ipc")
    narrowed = grid.narrowed(
        methods=options.get("--methods", "").split(",") if "--methods" in options else (),
        datasets=options.get("--datasets", "").split(",") if "--datasets" in options else (),
        ipc=() if ipc is None else (None if ipc == "full" else int(ipc),),
        epsilon=(parse_float(options["--eps"]),) if "--eps" in options else (),
        delta=parse_float(options["--delta"]) if "--delta" in options else None,
        seeds=(parse_integer(options["--seeds"]),) if "--seeds" in options else (),
        metrics=options.get("--metrics", "").split(",") if "--metrics" in options else (),
    )
    assert set(narrowed.metrics) == set(json.loads(made.metrics))
    narrowed.check_plugins()
    return narrowed.cells(
        private_counts="--private-counts" in flags, secure_noise="--secure-noise" in flags
    )


@pytest.mark.parametrize(
    "cell",
    [
        CELL,
        replace(CELL, ipc=None, full_size=True, epsilon=0.1 + 0.2),
        replace(CELL, method=Variant("real", "real"), ipc=None, epsilon=None),
        replace(CELL, private_counts=True, secure_noise=True),
        replace(CELL, delta=3e-7, split="paper", split_seed=4),
        replace(CELL, method=Variant("ldpdc", 'mine "a\\b" é')),
        replace(CELL, dataset=Variant("gbsg2", "other")),
    ],
)
def test_the_printed_command_makes_the_same_cell(cell: Cell) -> None:
    assert _cells(row(cell)) == [cell]


def test_the_page_of_an_audit() -> None:
    method = Variant("marginals", "marginals", (("bins", 4), ("name", "a b")))
    cell = replace(CELL, method=method, audit=AuditSpec("two-world", 400))
    outcome = audit_outcome("k" * 8, trials=200, planted=0.75, canary="<outlier>")
    page = read(cell_report(row(cell), (), outcome.audit))
    assert "seed 3, two-world audit" in page.text and "<outlier>" in page.text
    assert "200 trials counted" in page.text and "found in 75%" in page.text
    assert repeat(row(cell)).command == (
        "bench audit marginals --dataset gbsg2 --eps 1.0 --attack two-world --trials 400 --ipc 50 "
        """--delta 1e-05 --seed 3 --parameters bins=4 --parameters 'name="a b"' --out runs/again"""
    )
    values = metrics_of(row(cell), (), outcome.audit)
    assert values["audit/planted"] == 0.75 and values["audit/trials"] == 200
    assert (
        "audit/canary" not in values and parameters_of(row(cell))["setting/attack"] == "two-world"
    )


def test_a_method_with_parameters_is_made_again_from_a_grid_file() -> None:
    given = (("learning_rate", 0.5), ("steps", 7))
    cell = replace(CELL, method=Variant("ndpdc", "ndpdc(fast)", given))
    made = row(cell)
    assert repeat(made).command.startswith("bench run --grid cell.toml")
    grid = parse_grid(repeat(made).grid, "cell")
    assert grid.methods == (cell.method,)
    assert "learning_rate = 0.5" in cell_report(made, [])
