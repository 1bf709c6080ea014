"""Plugins are described as they are declared; what is read back is validated strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import pandas as pd
import pytest

from bench.data.files import DataFile, Obtain
from bench.errors import StoreError
from bench.plugins import registry
from bench.plugins.description import (
    FILE,
    LARGEST_TEXT,
    ClassCount,
    ColumnDescription,
    DatasetDescription,
    Descriptions,
    MethodDescription,
    ParameterDescription,
    dataset_identity,
    describe_dataset,
    describe_method,
    open_to_anybody,
    parse_descriptions,
)
from bench.plugins.method import UNKNOWN
from bench.plugins.source import DatasetSource
from bench.results.reading import read_descriptions
from tests.support.tables import ToyTable

CLOSED = {
    "celeba-gender",
    "curial",
    "dig",
    "eicu",
    "meps-drugs",  # public files, whose terms of use forbid to identify anyone
    "mimic3-ihm",
    "nhanes",  # likewise
    "nis",
    "seer-breast",
    "seer-incidence",
    "texas-discharge",
    "ukb-diabetes",
    "ukb-proteomics",
}


def described(name: str, **parameters: object) -> DatasetDescription:
    return describe_dataset(registry.build_source(name, parameters), parameters)


def test_who_may_have_the_rows_of_the_built_in_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    assert {name for name in registry.dataset_names() if not described(name).open} == CLOSED


def test_facts_of_a_dataset() -> None:
    card = described("gbsg2")
    assert card.identity == ("gbsg2", "{}")
    assert (card.task, card.unit, card.simulated, card.rows) == ("survival", "patient", False, 686)
    assert [(item.name, item.rows) for item in card.by_class] == [("0", 387), ("1", 299)]
    age = next(column for column in card.columns if column.name == "age")
    assert (age.kind, age.low, age.high, age.role) == ("whole number", 18.0, 100.0, "feature")
    assert "age" in card.quasi_identifiers and card.label == "cens"
    assert card.column_count == len(card.columns) == 10


def test_pixels_are_not_listed_one_by_one() -> None:
    card = described("digits")
    assert card.column_count == 65
    assert [column.role for column in card.columns] == ["target", "feature", "feature"]


def test_parameters_distinguish_descriptions() -> None:
    parameters = registry.build_source("curial-sim").parameters()
    name, value = next((n, v) for n, v in parameters.items() if isinstance(v, int))
    card = described("curial-sim", **{name: value})
    assert card.identity == ("curial-sim", json.dumps({name: value}))
    assert dataset_identity("curial-sim", "label", json.dumps({name: value})) == card.identity
    assert dataset_identity("", "label", "{") == ("label", "{")


@pytest.mark.parametrize(
    ("tuned_on", "words"),
    [
        ((), "none"),
        (("unknown",), "not on record"),
        (("adult", "digits"), "adult, digits"),
        (("adult", "unknown"), "adult; others are not on record"),
    ],
)
def test_which_datasets_were_in_view_in_words(tuned_on: tuple[str, ...], words: str) -> None:
    assert MethodDescription("name", "title", tuned_on=tuned_on).tuned_in_words == words


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_says_which_datasets_its_defaults_were_chosen_on(name: str) -> None:
    kind = registry.method_class(name)
    declared = vars(kind).get("tuned_on")  # inherited would be the word for "nobody said"
    assert isinstance(declared, tuple), "declare `tuned_on` in the class"
    assert len(set(declared)) == len(declared)
    assert set(declared) <= {UNKNOWN, *registry.dataset_names()}
    assert describe_method(kind).tuned_on == declared


def test_what_a_run_of_an_earlier_version_does_not_say_is_not_on_record() -> None:
    method = MethodDescription("name", "title", tuned_on=("adult",))
    text = Descriptions(methods=(method,)).to_json()
    assert parse_descriptions(text).methods == (method,)
    document = json.loads(text)
    del document["methods"][0]["tuned_on"]
    (read,) = parse_descriptions(json.dumps(document)).methods
    assert read.tuned_in_words == "not on record"


def test_facts_of_a_method() -> None:
    card = describe_method(registry.method_class("ldpdc"))
    assert card.title == "Linear DP dataset condensation"
    assert "Algorithm 1" in card.paper and "Theorem III.1" in card.text
    assert card.summary.startswith("Noisy sums")
    said = {item.name: (item.default, item.text) for item in card.parameters}
    assert said == {
        "group_size": ("50.0", "Expected number of rows in a sum: L."),
        "noise_multiplier": ("null", "None calibrates the noise to the budget."),
    }
    assert (card.uses_budget, card.uses_ipc, card.environment) == (True, True, "")
    assert not describe_method(registry.method_class("real")).uses_budget


# Who may have the rows ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Elsewhere(DatasetSource):
    """A dataset of somebody else's plugin."""

    name: ClassVar[str] = "elsewhere"

    def load(self) -> pd.DataFrame:
        raise AssertionError("a description must not read a row")


def obtained(agreement: str = "none", url: str = "https://host.org/a.csv") -> Obtain:
    return Obtain("them", agreement, "https://host.org", "ask", "a", (DataFile("a.csv", url=url),))


def test_in_doubt_a_dataset_is_not_open() -> None:
    source = Elsewhere()
    declared = replace(ToyTable().declare(), licence="ours", simulated=False, obtain=None)
    assert not open_to_anybody(source, declared)
    assert open_to_anybody(source, replace(declared, simulated=True))
    assert open_to_anybody(source, replace(declared, obtain=obtained()))
    assert not open_to_anybody(source, replace(declared, obtain=obtained("sign this")))
    assert not open_to_anybody(source, replace(declared, obtain=obtained(url="")))
    closed = replace(declared, licence="Closed: ours", simulated=True)
    assert not open_to_anybody(source, closed)
    inferred = replace(declared, simulated=True, schema=replace(declared.schema, inferred=True))
    assert not open_to_anybody(source, inferred)


# The file of a run --------------------------------------------------------------------------------

METHOD = MethodDescription(
    "ldpdc",
    "Noisy sums",
    "a paper",
    parameters=(ParameterDescription("steps", "3"),),
    requirements=("x==1",),
)
DATASET = DatasetDescription(
    name="breast-cancer",
    parameters="{}",
    title="Breast cancer",
    open=True,
    column_count=2,
    columns=(
        ColumnDescription("age", "number", low=0.0, high=120.0),
        ColumnDescription("sex", "binary", categories=("f", "m"), category_count=2),
    ),
    by_class=(ClassCount("benign", 357), ClassCount("malignant", 212)),
)
DESCRIPTIONS = Descriptions((METHOD,), (DATASET,))


def written(directory: Path, document: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    text = document if isinstance(document, str) else json.dumps(document)
    (directory / FILE).write_text(text, encoding="utf-8")
    return directory


def changed(**changes: Any) -> dict[str, Any]:
    """The document of the two descriptions with something else in the dataset's."""
    document: dict[str, Any] = json.loads(DESCRIPTIONS.to_json())
    document["datasets"][0] |= changes
    return document


def test_descriptions_come_back_as_they_were_written() -> None:
    assert parse_descriptions(DESCRIPTIONS.to_json()) == DESCRIPTIONS
    assert DESCRIPTIONS.datasets[0].rows == 569


def test_a_dataset_stays_open_only_where_both_say_so() -> None:
    closed = Descriptions(datasets=(replace(DATASET, open=False),))
    assert not DESCRIPTIONS.joined(closed).datasets[0].open
    assert not closed.joined(DESCRIPTIONS).datasets[0].open
    assert DESCRIPTIONS.joined(DESCRIPTIONS).datasets[0].open
    assert DESCRIPTIONS.joined(Descriptions()) == DESCRIPTIONS


HOSTILE: dict[str, object] = {
    "no JSON": "{",
    "no object": [1, 2],
    "another format version": {"form": 2},
    "the version is a text": '{"form": "1"}',
    "the version is true": '{"form": true}',
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
    "two descriptions of one dataset": {
        "form": 1,
        "datasets": json.loads(DESCRIPTIONS.to_json())["datasets"] * 2,
    },
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_description_is_refused(document: object, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=FILE):
        read_descriptions(written(tmp_path, document))


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    assert parse_descriptions(json.dumps(changed(colour="blue"))) == DESCRIPTIONS


def test_half_of_a_surrogate_pair_can_be_written_to_a_page() -> None:
    document = json.dumps(changed(title="bad")).replace('"bad"', '"a\\ud800b"')
    title = parse_descriptions(document).datasets[0].title
    assert title.encode() == b"a?b"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere", DESCRIPTIONS.to_json())
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / FILE).symlink_to(elsewhere / FILE)
    with pytest.raises(StoreError, match="symbolic link, which is not followed"):
        read_descriptions(stranger)


def test_what_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"form": 1, "x": "\xff"}')
    with pytest.raises(StoreError, match="not UTF-8"):
        read_descriptions(tmp_path)


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_says_its_kind_and_where_its_paper_is(name: str) -> None:
    card = describe_method(registry.method_class(name))
    assert card.family
    assert card.link == card.address  # an address beginning with https, or none
    if card.paper.startswith("none"):
        assert card.year == "" and (card.by_maintainers or not card.uses_budget)


def test_the_year_is_the_last_that_the_paper_names() -> None:
    assert MethodDescription("a", "A", "B, After 1984, ICML 2021").year == "2021"
    assert MethodDescription("a", "A", "none: after B, ICML 2021").year == ""
    assert MethodDescription("a", "A", "B, section 12345").year == ""
    assert MethodDescription("a", "A", link="javascript:alert(1)").address == ""
