"""The dossier says what the evidence says, and no more."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.leaderboard.dossier import words
from bench.leaderboard.dossier.material import _training_rows
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.events import gaussian
from bench.privacy.ledger import Entry, Ledger
from tests.support.dossiers import (
    ODDS,
    Made,
    box,
    one_release,
    plain,
    raw_ledger,
    sound_ledger,
)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "run")


@pytest.fixture
def one(tmp_path: Path) -> Callable[..., Made]:
    return functools.partial(one_release, tmp_path / "run")


# Words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(0.0, "1"), (1.0, "2.72"), (math.log(2), "2"), (3.0, "20.1"), (10.0, "22,100")],
)
def test_factors_are_rounded_up(epsilon: float, text: str) -> None:
    assert words.factor(epsilon) == text
    assert float(text.replace(",", "")) >= math.exp(epsilon) - 1e-9


def test_an_infinite_or_huge_epsilon_has_no_factor() -> None:
    assert words.factor(math.inf) == "without limit"
    assert words.factor(800.0) == "10^348"  # 800 / ln 10 = 347.4
    assert words.right_guesses(math.inf, 0.0) == words.found_members(math.inf, 0.0) == "100%"
    assert words.right_guesses(800.0, 0.0) == words.found_members(800.0, 0.0) == "100%"


def test_what_an_attacker_can_reach_follows_the_trade_off_region() -> None:
    # e / (1 + e) = 0.7311; 2 x 0.01; at large epsilon the second line of the region cuts: with
    # e^eps = 99 it is 1 - 0.99 / 99 = 0.99, where the first gives 0.99 too.
    assert words.right_guesses(0.0, 0.0) == "50%"
    assert words.right_guesses(1.0, 0.0) == "73.2%"
    assert words.found_members(math.log(2), 0.0) == "2%"
    assert words.found_members(math.log(2), 0.001) == "2.1%"
    assert words.found_members(math.log(99), 0.0) == "99%"


def test_units_and_parts_in_words() -> None:
    assert "k times" in words.unit_of("row").protects
    assert words.unit_of("ward").protects.startswith("One ward")
    assert words.place((("split", "train"), ("class", "1"))) == "training rows, class 1"
    assert words.place(()) == "all rows"
    paths = [(("class", str(code)),) for code in range(10)]
    assert words.places(paths).endswith("class 7; and 2 more parts")
    assert words.chance(1e-5) == "1 in 100,000" and words.chance(0.0) == "0"


# Conclusions ------------------------------------------------------------------------------------


def test_a_sound_release_gets_one_sentence_with_its_conditions(one: Callable[..., Made]) -> None:
    made = one()
    proven = made.run.cells[0].eps_proven
    assert proven is not None
    text = box(made.page("abc123"))
    assert "If the declared counts and the schema are public knowledge" in text
    assert ODDS in text and words.factor(proven) in text and "1 in 100,000" in text
    assert text.count(".") - len(re.findall(r"\d\.\d", text)) == 1
    assert "Contradiction" not in made.page("abc123")


def test_paid_counts_are_no_condition(one: Callable[..., Made]) -> None:
    page = one(private_counts=True).page("abc123")
    assert "If the schema is public knowledge" in box(page)
    assert "342" not in plain(page)  # the declared number of rows is then not public


def test_a_trusted_library_is_a_condition(one: Callable[..., Made]) -> None:
    ledger = Ledger(Budget(1.0, 1e-5))
    ledger.add(Entry((), gaussian(9.0), trust="wrapped 1.2"), 1)
    made = one(ledger, verdict="sound, trusting wrapped 1.2")
    assert "and wrapped 1.2 works as documented" in box(made.page("abc123"))


def test_study_only_gets_no_conclusion_at_all(one: Callable[..., Made]) -> None:
    page = one(study_only=True).page("abc123")
    text = box(page)
    assert "No conclusion" in text and "study only" in text and "--secure-noise" in text
    assert ODDS not in page and ">Conclusion<" not in page
    assert "which it is not in this run" in page  # the bound in words holds for secret noise only
    assert "Had they been made with secure noise" in page


@pytest.mark.parametrize(
    "kind, head", [("unproven", "Privacy not proven"), ("non_private", "Not private")]
)
def test_what_seeded_noise_does_not_change_comes_before_study_only(
    one: Callable[..., Made], kind: str, head: str, request: pytest.FixtureRequest
) -> None:
    changes = request.getfixturevalue(kind)
    page = one(raw_ledger(changes.get("eps_target", 1.0)), **changes, study_only=True).page(
        "abc123"
    )
    text = box(page)
    assert f">{head}<" in page and "No conclusion" not in text
    assert "secret noise would not change this conclusion" in text


def test_unproven_non_private_and_refuted_are_said(
    tmp_path: Path, unproven: dict[str, Any], non_private: dict[str, Any]
) -> None:
    made = Made(tmp_path / "run")
    made.cell("pate", "a1", **unproven)
    made.release("a1", raw_ledger(1.0))
    made.cell("real", "b1", **non_private)
    made.release("b1", raw_ledger())
    ledger = sound_ledger()
    refuted = {"eps_proven": ledger.proof().epsilon, "eps_audited": 2.5, "verdict_reason": "it did"}
    made.cell("broken", "c1", verdict="proof refuted", **refuted)
    made.release("c1", ledger)
    made.cell("boast", "d1", verdict="claim refuted", **refuted)
    made.release("d1", ledger)
    pages = [made.page(key) for key in ("a1", "b1", "c1", "d1")]
    assert "is not proven: it claims epsilon 1 (a paper), but rows were read" in box(pages[0])
    assert "treat it like the private rows themselves" in box(pages[1])
    assert "refuted the privacy proof of this release: it did" in box(pages[2])
    assert "refuted the privacy claim" in box(pages[3])
    for page in pages:
        assert ODDS not in page and 'class="box bad"' in page and "Inconsistency" not in page


def test_over_the_target_is_not_as_asked_for(one: Callable[..., Made]) -> None:
    ledger = Ledger(Budget(0.1, 1e-5))
    ledger.add(Entry((), gaussian(2.0)), 1)
    made = one(ledger, eps_target=0.1, verdict="unproven", verdict_reason="the ledger proves more")
    assert "is not as requested: the ledger proves more" in box(made.page("abc123"))


def test_an_infinite_epsilon_bounds_nothing(made: Made, non_private: dict[str, Any]) -> None:
    made.cell("real", "b1", **non_private)
    made.release("b1", raw_ledger())
    text = plain(made.page("b1"))
    assert "No bound is proven," in text and "proven infinite without limit" in text
    assert "No guarantee is proven for this release" in text
    assert "the rows were read without any noise" in text
    assert "reason given: rows were read without noise" in text
    assert "No release here has a bound" in text


# Contradictions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eps_proven": 0.5}, "the result table says 0.5"),
        ({"unit": "patient"}, "The ledger protects each row, the result table says patient"),
        ({"eps_target": 2.0}, "a target of 1, the result table says 2"),
        ({"delta": 1e-6}, "The ledger is for delta 1e-05, the result table says 1e-06"),
        ({"verdict": "unproven"}, "the verdict is &#39;sound&#39;, the result table says"),
        ({"eps_audited": 3.0}, "An attack measured epsilon 3"),
    ],
)
def test_a_ledger_that_disagrees_is_said_in_red_and_ends_the_matter(
    one: Callable[..., Made], changes: dict[str, Any], said: str
) -> None:
    page = one(**changes).page("abc123")
    assert re.search(rf'<p class="red">Inconsistency: [^<]*{re.escape(said)}', page)
    assert "No conclusion" in box(page) and ODDS not in page


@pytest.mark.parametrize("content", [None, "{", '{"form": 1}', "[" * 100_000])
def test_a_ledger_that_cannot_be_replayed(made: Made, content: str | None) -> None:
    made.cell("ldpdc", "abc123")
    made.release("abc123", None)
    if content is not None:
        (made.directory / "releases" / "abc123" / "ledger.json").write_text(content)
    page = made.page("abc123")
    assert "The ledger of this release" in page and "No conclusion" in box(page)


def test_the_ledger_is_told_entry_by_entry(one: Callable[..., Made]) -> None:
    text = plain(one().page("abc123"))
    assert "holds each row with probability 0.1: a result with Gaussian noise" in text
    assert "3 times in each part training rows, class benign; training rows, class malig" in text
    assert "Laplace noise, scale 4 times the most that one row can change" in text
    assert "The recomputed bound agrees with the result table" in text


# Where the parameters come from -------------------------------------------------------------------

NOT_MET = "Not met: the default parameters of the method were chosen with this dataset in view"
ASSUMED = "were not chosen with this dataset in view: this is assumed, because it is not on record."
NOT_IN_VIEW = "The default parameters of the method were not chosen with this dataset in view. In"


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    ("method", "dataset", "sentence"),
    [
        ("private-teacher-dc", "breast-cancer", NOT_MET),
        ("private-teacher-dc", "gbsg2", f"{NOT_IN_VIEW} view were adult, breast-cancer, "),
        ("fedavg-dp", "digits", NOT_MET),
        ("ldpdc", "breast-cancer", ASSUMED),
        ("dm", "breast-cancer", f"{ASSUMED} On record are digits."),
        ("not-installed", "breast-cancer", ASSUMED),
    ],
)
def test_defaults_are_said_to_be_chosen_where_they_were(
    one: Callable[..., Made], method: str, dataset: str, sentence: str, public: bool
) -> None:
    page = one(method=method, dataset=dataset).page("abc123", public)
    text = plain(page)
    assert sentence in text
    said = [other for other in (NOT_MET, ASSUMED, NOT_IN_VIEW) if other in text]
    assert len(said) == 1
    above = plain(page[: page.index("<main>")])
    warned = "The defaults of the method were chosen with this dataset in view." in above
    assert warned == (sentence == NOT_MET)


def test_a_dataset_under_another_label_is_still_the_one_in_view(one: Callable[..., Made]) -> None:
    text = plain(one(method="dm", dataset="small", dataset_name="digits").page("abc123"))
    assert NOT_MET in text


@pytest.mark.parametrize(
    ("tuned_on", "module", "sentence"),
    [
        (("adult", "unknown"), "bench.methods.mine", "s own. In view were adult."),
        (("unknown",), "their_package.mine", ASSUMED),
        (("ward",), "their_package.mine", NOT_MET),
    ],
)
def test_only_its_own_author_can_have_seen_a_users_own_table(
    one: Callable[..., Made],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tuned_on: tuple[str, ...],
    module: str,
    sentence: str,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("BENCH_DATA", str(data))
    rows = "".join(f"{age},{age % 2}\n" for age in range(20, 80))
    (data / "ward.csv").write_text(f"age,died\n{rows}")
    added = CliRunner().invoke(main, ["data", "add", str(data / "ward.csv"), "--target", "died"])
    assert added.exit_code == 0, added.output
    kind = registry.method_class("ldpdc")
    monkeypatch.setattr(kind, "tuned_on", tuned_on)
    monkeypatch.setattr(kind, "__module__", module)
    assert sentence in plain(one(dataset="ward").page("abc123"))


def test_parameters_set_for_a_run_are_not_covered_by_the_defaults(one: Callable[..., Made]) -> None:
    text = plain(one(parameters='{"group_size": 20.0}').page("abc123"))
    assert "Parameters that were set for this run (group_size = 20.0) were not chosen by" in text


def test_without_set_parameters_nothing_is_said_about_them(one: Callable[..., Made]) -> None:
    assert "Parameters that were set for this run" not in plain(one().page("abc123"))


@pytest.mark.parametrize(
    ("unit", "said"),
    [("row", "Each row belongs to one part"), ("client", "the steps on all parts add up")],
)
def test_how_parts_compose_depends_on_the_unit(
    one: Callable[..., Made], unit: str, said: str
) -> None:
    ledger = Ledger(Budget(1.0, 1e-5), unit=unit)
    for split in ("train", "validation"):
        ledger.add(Entry((("split", split),), gaussian(9.0)), 1)
    page = one(ledger, unit=unit, eps_proven=ledger.proof().epsilon).page("abc123")
    assert said in plain(page) and "Inconsistency" not in page


# Delta --------------------------------------------------------------------------------------------


def test_delta_is_compared_with_the_declared_rows(one: Callable[..., Made]) -> None:
    text = plain(one().page("abc123"))
    assert "Delta is 1e-05 (1 in 100,000), below 1/(10 n) = 0.00029 for the 342 declared" in text


def test_a_large_delta_is_warned_about(one: Callable[..., Made]) -> None:
    page = one(sound_ledger(delta=1e-3), delta=1e-3).page("abc123")
    assert re.search(r'<p class="red">Delta is 0.001 .*too large for 342 training rows', page)
    assert "too large for 342" in page[: page.index("<main>")]


def test_an_unknown_dataset_falls_back_on_what_the_run_said(one: Callable[..., Made]) -> None:
    warning = "delta 0.001 is above 1/(10 n) = 0.0002"
    page = one(sound_ledger(delta=1e-3), delta=1e-3, dataset="elsewhere", warnings=warning).page(
        "abc123"
    )
    assert "The number of training rows is unknown" in page and warning in page


@pytest.mark.parametrize(("name", "rows"), [("breast-cancer", 342), ("adult", 24_421)])
def test_declared_training_rows_without_opening_the_data(name: str, rows: int) -> None:
    assert sum(_training_rows(registry.build_source(name), "default")) == rows


@pytest.mark.parametrize(
    ("name", "preset"), [("breast-cancer", "paper"), ("curial-sim", "default")]
)
def test_declared_training_rows_are_those_of_the_dataset(name: str, preset: str) -> None:
    source = registry.build_source(name)
    assert _training_rows(source, preset) == build_dataset(source, preset).counts.by_class
