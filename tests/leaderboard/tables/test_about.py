"""Cards from `about.json`: read strictly, and never trusted further than they reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import StoreError
from bench.leaderboard.tables.about import (
    FILE,
    LARGEST_TEXT,
    Cards,
    ClassCount,
    ColumnCard,
    DatasetCard,
    MethodCard,
    Parameter,
    parse_cards,
    read_about,
    read_cards,
)
from bench.leaderboard.tables.load import load_results

METHOD = MethodCard(
    "ldpdc", "Noisy sums", "a paper", parameters=(Parameter("steps", "3"),), requirements=("x==1",)
)
DATASET = DatasetCard(
    name="breast-cancer",
    parameters="{}",
    title="Breast cancer",
    open=True,
    column_count=2,
    columns=(
        ColumnCard("age", "number", low=0.0, high=120.0),
        ColumnCard("sex", "binary", categories=("f", "m"), category_count=2),
    ),
    by_class=(ClassCount("benign", 357), ClassCount("malignant", 212)),
)
CARDS = Cards((METHOD,), (DATASET,))


def written(directory: Path, document: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    text = document if isinstance(document, str) else json.dumps(document)
    (directory / FILE).write_text(text, encoding="utf-8")
    return directory


def changed(**changes: Any) -> dict[str, Any]:
    """The document of the two cards with something else in the dataset's."""
    document: dict[str, Any] = json.loads(CARDS.to_json())
    document["datasets"][0] |= changes
    return document


def test_cards_come_back_as_they_were_written() -> None:
    assert parse_cards(CARDS.to_json()) == CARDS
    assert CARDS.datasets[0].rows == 569


def test_a_run_without_cards_has_none(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    results = load_results([run.write(tmp_path / "run")])
    about = read_about(results)
    assert (about.methods, about.datasets, about.notes) == ({}, {}, ())
    assert not about.is_open(tmp_path / "run", DATASET.identity)


def test_a_run_with_cards(run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    directory = run.write(tmp_path / "run")
    written(directory, CARDS.to_json())
    about = read_about(load_results([directory]))
    assert about.methods["ldpdc"] == METHOD
    assert about.datasets["breast-cancer", "{}"] == DATASET
    assert about.is_open(directory, ("breast-cancer", "{}"))
    assert not about.is_open(directory, ("breast-cancer", '{"rows": 3}'))
    assert not about.is_open(None, ("breast-cancer", "{}"))


def test_what_one_run_says_does_not_open_the_rows_of_another(
    new_run: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = new_run(), new_run()
    first.add("ldpdc", 0.8, seed=0)
    second.add("ldpdc", 0.8, seed=1)
    directories = [first.write(tmp_path / "first"), second.write(tmp_path / "second")]
    written(directories[0], CARDS.to_json())
    about = read_about(load_results(directories))
    assert about.is_open(directories[0], DATASET.identity)
    assert not about.is_open(directories[1], DATASET.identity)


def test_a_dataset_stays_open_only_where_both_say_so() -> None:
    closed = Cards(datasets=(replace(DATASET, open=False),))
    assert not CARDS.joined(closed).datasets[0].open
    assert not closed.joined(CARDS).datasets[0].open
    assert CARDS.joined(CARDS).datasets[0].open
    assert CARDS.joined(Cards()) == CARDS


HOSTILE: dict[str, object] = {
    "no JSON": "{",
    "no object": [1, 2],
    "another form": {"form": 2},
    "form is true": '{"form": "1"}',
    "too deep": "[" * 100_000,
    "a number of 5000 digits": '{"form": ' + "1" * 5000 + "}",
    "methods are no list": {"form": 1, "methods": {"a": 1}},
    "a method is a text": {"form": 1, "methods": ["ldpdc"]},
    "a method without a name": {"form": 1, "methods": [{"title": "x"}]},
    "a title is a number": changed(title=3),
    "open is a text": changed(open="false"),
    "open is one": changed(open=1),
    "a text without end": changed(licence="x" * (LARGEST_TEXT + 1)),
    "a count is true": changed(column_count=True),
    "a count is negative": changed(column_count=-1),
    "a count is too large": changed(column_count=10**30),
    "a bound is not a number": changed(columns=[{"name": "a", "kind": "number", "low": "0"}]),
    "a bound is NaN": '{"form": 1, "datasets": [{"name": "a", "parameters": "{}", "title": "t", '
    '"columns": [{"name": "a", "kind": "number", "low": NaN}]}]}',
    "a bound is no float": changed(columns=[{"name": "a", "kind": "number", "low": 10**400}]),
    "a column is null": changed(columns=[None]),
    "too many columns": changed(columns=[{"name": "a", "kind": "number"}] * 301),
    "categories are numbers": changed(
        columns=[{"name": "a", "kind": "category", "categories": [1, 2]}]
    ),
    "two cards of one dataset": {
        "form": 1,
        "datasets": json.loads(CARDS.to_json())["datasets"] * 2,
    },
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_card_is_left_out_and_said(document: object, run: Any, tmp_path: Path) -> None:
    run.add("ldpdc", 0.8)
    directory = written(run.write(tmp_path / "run"), document)
    with pytest.raises(StoreError, match=FILE):
        read_cards(directory)
    about = read_about(load_results([directory]))
    assert (about.methods, about.datasets, about.open) == ({}, {}, frozenset())
    assert len(about.notes) == 1 and about.notes[0].startswith("the cards of run run are left out")


def test_unknown_fields_of_a_later_version_are_passed_over() -> None:
    assert parse_cards(json.dumps(changed(colour="blue"))) == CARDS


def test_half_of_a_surrogate_pair_can_be_written_to_a_page() -> None:
    document = json.dumps(changed(title="bad")).replace('"bad"', '"a\\ud800b"')
    title = parse_cards(document).datasets[0].title
    assert title.encode() == b"a?b"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere", CARDS.to_json())
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / FILE).symlink_to(elsewhere / FILE)
    with pytest.raises(StoreError, match="no plain file"):
        read_cards(stranger)


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"form": 1, "x": "\xff"}')
    with pytest.raises(StoreError, match="not UTF-8"):
        read_cards(tmp_path)
