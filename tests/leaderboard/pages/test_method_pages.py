"""The page of a method: its card, its verdicts, its ledger, its results and its failures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event

from bench.leaderboard.pages import card_pages
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.pages.card_pages import DocBlock, doc_blocks
from bench.leaderboard.ranking.rank import CHOSEN_HERE
from bench.leaderboard.tables.show import coded
from bench.leaderboard.templates import rendering
from bench.plugins.description import FILE, Descriptions, MethodDescription, ParameterDescription
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Entry, Ledger
from tests.support.card_page import CardPage, parsed

CARD = MethodDescription(
    name="ldpdc",
    title="Linear condensation",
    paper="Zheng and Li, Algorithm 1",
    summary="Noisy sums.",
    text=(
        "Sums of samples.\n\n    s = (noise + sum) / L\n\n"
        "Deviations:\n- one noise for\n  all\n- none"
    ),
    environment="smartnoise",
    requirements=("snsynth==1.0",),
    tuned_on=("adult", "unknown"),
    parameters=(
        ParameterDescription("steps", "3", "how often"),
        ParameterDescription("rate", "0.5"),
    ),
)


def rendered(directory: Path, *, public: bool = False, cells: int = 0) -> dict[str, CardPage]:
    return parsed(card_pages.method_pages(compile_board([directory], public=public, cells=cells)))


def page_of(directory: Path, label: str, **options: Any) -> CardPage:
    return rendered(directory, **options)[rendering.method_path(label)]


def add_card(directory: Path, card: MethodDescription = CARD) -> Path:
    (directory / FILE).write_text(Descriptions(methods=(card,)).to_json(), encoding="utf-8")
    return directory


def add_ledger(directory: Path, key: str, text: str = "") -> Path:
    ledger = Ledger(Budget(1.0, 1e-5), unit="row")
    event = dp_event.PoissonSampledDpEvent(0.25, dp_event.GaussianDpEvent(4.0))
    for name in ("0", "1"):
        ledger.add(Entry((("split", "train"), ("class", name)), event), 50)
    folder = directory / "releases" / key
    folder.mkdir(parents=True)
    (folder / "ledger.json").write_text(text or ledger.to_json(), encoding="utf-8")
    return directory


def test_one_page_a_method(mixed_run: Any, tmp_path: Path) -> None:
    pages = rendered(mixed_run.write(tmp_path / "run"))
    names = ("real", "gats", "marginals", "pate", "ldpdc", "picky")
    assert sorted(pages) == sorted(rendering.method_path(name) for name in names)


def test_the_card_is_shown(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, parameters=json.dumps({"steps": 7}))
    page = page_of(add_card(run.write(tmp_path / "run")), "ldpdc")
    assert "Linear condensation. Noisy sums." in page.sections[""]
    told = page.sections["what"] + page.sections["how"]
    for text in (
        "Zheng and Li, Algorithm 1",
        "s = (noise + sum) / L",
        "smartnoise",
        "snsynth==1.0",
        "Defaults chosen on adult; others are not on record",
    ):
        assert text in told
    assert "<li>one noise for all</li>" in page.source
    assert page.row("how", "steps") == ["steps", "7", "3", "how often"]
    assert page.row("how", "rate") == ["rate", "0.5", "0.5", ""]
    assert "<strong>7</strong>" in page.source and "<strong>0.5</strong>" not in page.source


def test_without_a_card_the_page_says_so(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, parameters=json.dumps({"steps": 7}))
    page = page_of(run.write(tmp_path / "run"), "ldpdc")
    assert "The run has no card of this method" in page.sections["what"]
    assert page.row("how", "steps")[:2] == ["steps", "7"]


def test_parameters_that_are_no_object_are_shown_as_they_are(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, parameters="[1, 2")
    page = page_of(add_card(run.write(tmp_path / "run")), "ldpdc")
    assert "As recorded by the run: [1, 2" in page.sections["how"]


def test_verdicts_that_differ_in_numbers_are_one(run: Any, tmp_path: Path) -> None:
    for epsilon in (1.0, 10.0):
        run.add("ldpdc", 0.8, eps_target=epsilon, verdict_reason=f"epsilon {epsilon} by PLD")
    run.add("ldpdc", 0.8, eps_target=3.0, verdict="unproven", verdict_reason="no accountant")
    page = page_of(run.write(tmp_path / "run"), "ldpdc")
    rows = page.rows["privacy"][1:]
    assert [row[0] for row in rows] == ["sound", "unproven"]
    assert rows[0][1] == "epsilon 1.0 by PLD (other numbers elsewhere)"
    assert rows[0][2].endswith("; ε 1, 10")
    assert rows[1][1:] == ["no accountant", "breast-cancer ; ε 3"]
    assert "theorem 1" in page.sections["privacy"]


def test_the_ledger_is_said_in_words(run: Any, tmp_path: Path) -> None:
    key = run.add("ldpdc", 0.8, key="abc")
    page = page_of(add_ledger(run.write(tmp_path / "run"), key), "ldpdc", cells=5)
    told = page.sections["ledger"]
    assert "50 times in each part , on training rows, class 0; training rows, class 1" in told
    assert "on a random sample that holds each row with probability 0.25" in told
    assert "Gaussian noise, standard deviation 4 times" in told
    assert f"../{rendering.cell_path(key)}" in page.links


def test_equal_ledgers_are_told_once(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, key="one", task="classification")
    run.add("ldpdc", 0.8, key="two", task="survival", dataset="gbsg2")
    directory = run.write(tmp_path / "run")
    for key in ("one", "two"):
        add_ledger(directory, key)
    page = page_of(directory, "ldpdc")
    assert page.source.count("50 times in each part") == 1
    assert "breast-cancer classification" in page.sections["ledger"]
    assert "gbsg2 survival" in page.sections["ledger"]


HOSTILE_LEDGERS = {
    "no JSON": "{",
    "too deep": "[" * 100_000,
    "another form": '{"form": 9, "adjacency": "x"}',
    "a list": "[1]",
    "a text": '"ledger"',
    "entries are numbers": '{"form": 1, "adjacency": "add-remove", "target_epsilon": null, '
    '"delta": 1e-5, "unit": "row", "order": 2.0, "entries": [3]}',
}


@pytest.mark.parametrize("text", HOSTILE_LEDGERS.values(), ids=HOSTILE_LEDGERS)
def test_a_ledger_that_cannot_be_read_is_said(text: str, run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, key="abc")
    page = page_of(add_ledger(run.write(tmp_path / "run"), "abc", text), "ldpdc")
    assert "The ledger cannot be shown: it cannot be read" in page.sections["ledger"]


@pytest.mark.parametrize("key", ["../../elsewhere", "/etc", ".hidden", "a/b", "", "a\x00b"])
def test_a_key_that_is_no_plain_name_opens_no_file(key: str, run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, key=key)
    add_ledger(tmp_path, "x")
    (tmp_path / "elsewhere").mkdir()
    page = page_of(run.write(tmp_path / "run"), "ldpdc")
    assert "No ledger of a finished cell can be shown" in page.sections["ledger"]


def test_a_link_is_not_followed_to_a_ledger(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8, key="abc")
    directory = run.write(tmp_path / "run")
    add_ledger(tmp_path / "other", "abc")
    (directory / "releases").symlink_to(tmp_path / "other" / "releases")
    page = page_of(directory, "ldpdc")
    assert "symbolic link" in page.sections["ledger"]


def test_results_over_the_grid(mixed_run: Any, tmp_path: Path) -> None:
    page = page_of(mixed_run.write(tmp_path / "run"), "ldpdc")
    rows = page.rows["results"][1:]
    assert [row[0] for row in rows] == ["breast-cancer"] * 2 + ["curial-sim"] * 2
    # Headline 0.8 of 0.905, the mean of the real rows over two seeds; first of two sound methods.
    assert rows[0][1:7] == ["50", "1", "1", "0.9", "–", "sound"]  # noqa: RUF001
    assert rows[0][7] == "0.800 [0.780, 0.820] auroc ↑"
    assert rows[0][8:12] == ["88.4%", "0.000", "1 of 2", "2 ok"]
    # One seed of two is out of time, and so last on it: the mean of 1 and 2.
    assert rows[2][10:12] == ["1.5 of 2", "1 ok, 1 failed"]


def test_readers_learn_whose_method_it_is_and_where_it_was_tuned(run: Any, tmp_path: Path) -> None:
    card = replace(
        CARD,
        paper="Zheng and Li, A paper, ICML 2023",
        link="https://example.org/paper",
        family="condensation",
        by_maintainers=True,
    )
    run.add("ldpdc", 0.8)
    run.add("ldpdc", 0.8, dataset="adult")
    page = page_of(add_card(run.write(tmp_path / "run"), card), "ldpdc")
    told = page.sections["what"]
    for text in ("Kind condensation", "the maintainers of this benchmark", "Scores on adult are"):
        assert text in told
    assert '<a href="https://example.org/paper" rel="noreferrer">' in page.source
    rows = {row[0]: row for row in page.rows["results"][1:]}
    # The whole reason in each of many rows made a table of 72 rows hard to read.
    assert rows["adult tuned"][10] == "not ranked: tuned here"
    assert f'title="{CHOSEN_HERE}"' in page.source
    # What a reader asks first comes first; the notes of the implementation are folded.
    order = [page.source.index(f'<section id="{name}"') for name in ("what", "results", "how")]
    assert order == sorted(order)
    assert page.source.index("<details", order[2]) < page.source.index("Sums of samples.")


def test_a_link_that_is_no_address_is_not_linked(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    card = replace(CARD, link="javascript:alert(1)")
    page = page_of(add_card(run.write(tmp_path / "run"), card), "ldpdc")
    assert "javascript:" not in page.source


def test_failures_with_their_reason(mixed_run: Any, tmp_path: Path) -> None:
    page = page_of(mixed_run.write(tmp_path / "run"), "ldpdc")
    assert page.rows["failures"][1][:4] == ["curial-sim", "timeout", "1", "over 60 s"]
    picky = page_of(tmp_path / "run", "picky")
    assert "No cell finished, so there is no verdict" in picky.sections["privacy"]
    assert "Not ranked: skipped" in picky.sections[""]
    assert {row[1] for row in picky.rows["failures"][1:]} == {"skipped"}


def test_a_dataset_that_was_skipped_has_no_rows_of_dashes(run: Any, tmp_path: Path) -> None:
    run.add("tables", 0.8)
    for target in (1.0, 10.0):
        run.fail("tables", "skipped", "takes no images", dataset="digits", eps_target=target)
    page = page_of(run.write(tmp_path / "run"), "tables")
    assert [row[0] for row in page.rows["results"][1:]] == ["breast-cancer"]
    assert "Not in the table, since all cells were skipped: digits" in page.sections["results"]
    assert page.rows["failures"][1][:4] == ["digits", "skipped", "2", "takes no images"]


def test_one_panel_per_dataset_with_the_references(mixed_run: Any, tmp_path: Path) -> None:
    page = page_of(mixed_run.write(tmp_path / "run"), "ldpdc")
    assert page.source.count('<figure class="chart"') == 2
    assert "marginals" in page.sections["plots"] and "pate" not in page.sections["plots"]
    assert (
        "None. No result has a target epsilon"
        in page_of(tmp_path / "run", "gats").sections["plots"]
    )


def test_links_lead_to_pages_that_exist(mixed_run: Any, tmp_path: Path) -> None:
    from bench.leaderboard.pages.site import write_site

    write_site([mixed_run.write(tmp_path / "run")], tmp_path / "site")
    for folder in ("methods", "datasets"):
        for path in (tmp_path / "site" / folder).iterdir():
            for link in CardPage(path.read_text(encoding="utf-8")).links:
                if not link.startswith("#"):
                    assert (path.parent / link.split("#")[0]).is_file(), link


def test_names_are_harmless(run: Any, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    run.add(bad, 0.8, dataset=bad, method=bad, verdict_reason=bad, claim_source=bad, warnings=bad)
    run.fail(bad, reason=bad, dataset=bad, seed=5)
    directory = add_card(
        run.write(tmp_path / "run"),
        MethodDescription(
            bad, bad, bad, bad, f"{bad}\n\n    {bad}\n\n- {bad}", environment=bad,
            requirements=(bad,), parameters=(ParameterDescription(bad, bad, bad),),
        ),
    )  # fmt: skip
    page = page_of(directory, bad)
    assert page.tags.count("script") == 2
    assert (page.sections["what"] + page.sections["how"]).count(bad) >= 6


def test_internal_and_public_are_marked(mixed_run: Any, tmp_path: Path) -> None:
    directory = mixed_run.write(tmp_path / "run")
    internal = page_of(directory, "ldpdc")
    assert "internal" in internal.sections[""] and "--public" in internal.sections[""]
    public = page_of(directory, "ldpdc", public=True)
    assert "Public page" in public.sections[""] and "internal" not in public.sections[""]
    assert "For breast-cancer, curial-sim, whose rows are not public" in public.sections[""]
    assert "0.800" not in public.source
    assert public.rows["results"][1][6] == "sound"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\nline", (DocBlock("p", "one line"),)),
        ("a\n\n    x = 1\n    y = 2", (DocBlock("p", "a"), DocBlock("pre", "x = 1\ny = 2"))),
        (
            "so:\n- one\n  more\n- two",
            (DocBlock("p", "so:"), DocBlock("ul", "", ("one more", "two"))),
        ),
        (
            "steps:\n1. one\n   more\n2. two",
            (DocBlock("p", "steps:"), DocBlock("ol", "", ("one more", "two"))),
        ),
        ("", ()),
        ("\n\n\n", ()),
    ],
)
def test_docstrings_in_blocks(text: str, expected: tuple[DocBlock, ...]) -> None:
    assert doc_blocks(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `a_b` here", "see <code>a_b</code> here"),
        ("`<b>` & <i>", "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"),
        ("one ` alone <b>", "one ` alone &lt;b&gt;"),
        ("", ""),
    ],
)
def test_backticks_become_code_and_nothing_becomes_markup(text: str, expected: str) -> None:
    assert coded(text) == expected


def test_labels_of_narrow_pages_are_the_headings_of_their_columns(
    mixed_run: Any, tmp_path: Path
) -> None:
    """A card of a narrow page names each value; a claimed epsilon must not be called proven."""
    board = compile_board([add_card(mixed_run.write(tmp_path / "run"))], cells=4)
    seen = 0
    for page in (*card_pages.method_pages(board), *card_pages.dataset_pages(board)):
        text = page.content.decode()
        for table in re.findall(r'<table class="cards[^>]*>.*?</table>', text, re.DOTALL):
            head, _, body = table.partition("</thead>")
            headings = re.findall(r"<th[^>]*>(.*?)</th>", head)
            for line in re.findall(r"<tr.*?</tr>", body, re.DOTALL):
                tags = re.findall(r"<t[dh]\b[^>]*>", line)
                assert len(tags) == len(headings)
                for tag, heading in list(zip(tags, headings, strict=True))[1:]:
                    (label,) = re.findall(r'data-label="([^"]*)"', tag)
                    assert label == heading
                    seen += 1
    assert seen > 100
    # A style sheet that counts columns is wrong as soon as one is added.
    style = rendering.asset("card.css") + rendering.asset("page.css")
    assert not re.findall(r"nth-child\(\d+\)::before", style)
