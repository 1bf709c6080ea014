"""The mutation tool plants what it says, where it says, and reports what it counted."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import ROOT

NAMES = ("operators", "targets", "scores")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The tool's modules, which are in no package."""
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / ".ci" / "mutation"))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


SOURCE = '''\
"""A docstring is not mutated."""
import math
from typing import TypeVar

T = TypeVar("T")
Number = int | float
LIMIT = 3


def clip(value: float, low: float = 0.0) -> float:
    """Nor is this one."""
    if not isinstance(value, int | float):
        raise TypeError("messages " + "are not")
    return max(low, min(value, LIMIT + 1))


class Counter:
    total: int = 0

    def add(self, values: list[float]) -> None:
        for value in values:
            if value < 0 and value != -1:
                continue
            self.total += 1
        print(f"total {self.total - 1}")

    def safe(self, text: str) -> float | None:
        try:
            return float(text)
        except ValueError:
            return None
'''


def mutants(tool: dict[str, ModuleType], folder: Path, text: str = SOURCE) -> list[object]:
    path = folder / "example.py"
    path.write_text(text, encoding="utf-8")
    found: list[object] = tool["operators"].Source(path, folder).mutants()
    return found


def test_every_operator_has_its_places(tool: dict[str, ModuleType], tmp_path: Path) -> None:
    found = Counter((one.operator, one.function) for one in mutants(tool, tmp_path))  # type: ignore[attr-defined]
    assert found == {
        ("constant", ""): 3,  # LIMIT, the default of `low`, `total`
        ("unary", "clip"): 1,
        ("statement", "clip"): 1,
        ("return", "clip"): 1,
        ("function", "clip"): 2,
        ("arithmetic", "clip"): 1,
        ("constant", "clip"): 1,
        ("condition", "Counter.add"): 1,
        ("boolean", "Counter.add"): 1,
        ("comparison", "Counter.add"): 2,
        ("unary", "Counter.add"): 1,
        ("constant", "Counter.add"): 3,
        ("loop", "Counter.add"): 1,
        ("arithmetic", "Counter.add"): 2,
        ("statement", "Counter.add"): 2,
        ("return", "Counter.safe"): 1,
        ("handler", "Counter.safe"): 1,
    }


def test_a_mutant_changes_one_thing_and_leaves_the_source_alone(
    tool: dict[str, ModuleType], tmp_path: Path
) -> None:
    answers = {}
    for one in mutants(tool, tmp_path):
        if one.function == "clip" and one.operator != "unary":  # type: ignore[attr-defined]
            space: dict[str, object] = {}
            exec(one.compile(), space)  # type: ignore[attr-defined]
            change = one.change.partition(" in `")[0]  # type: ignore[attr-defined]
            answers[change] = [space["clip"](value) for value in (-2.0, 2.0, 9.0)]  # type: ignore[operator]
    assert answers.pop("value to None") == [None] * 3
    assert answers.pop("max to min") == [-2.0, 0.0, 0.0]
    assert answers.pop("min to max") == [4, 4, 9.0]
    assert answers.pop("+ to - after `LIMIT`") == [0.0, 2.0, 2]
    assert answers.pop("1 to 2") == [0.0, 2.0, 5]
    assert answers.pop("raise removed") == [0.0, 2.0, 4]


def test_names_do_not_follow_line_numbers(tool: dict[str, ModuleType], tmp_path: Path) -> None:
    before = [one.id for one in mutants(tool, tmp_path)]  # type: ignore[attr-defined]
    assert len(set(before)) == len(before)
    after = mutants(tool, tmp_path, SOURCE.replace("LIMIT = 3", "# A comment.\n\nLIMIT = 3"))
    assert [one.id for one in after] == before  # type: ignore[attr-defined]
    other = mutants(tool, tmp_path, SOURCE.replace("LIMIT + 1", "LIMIT + 7"))
    assert set(before) - {one.id for one in other}  # type: ignore[attr-defined]


def test_a_sample_is_fixed_and_grows(tool: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(SOURCE, encoding="utf-8")
    source = tool["operators"].Source(path, tmp_path)

    def names(sample: int | None) -> set[str]:
        target = tool["targets"].Target("t", "", (), sample=sample)
        return {one.id for one in tool["scores"].chosen(target, [source])}

    assert names(5) == names(5) and len(names(5)) == 5
    assert names(5) < names(10) < names(None)


def test_survivors_are_run_again_when_tests_or_module_change(
    tool: dict[str, ModuleType], tmp_path: Path
) -> None:
    target = tool["targets"].Target("t", "", ())
    killed, survived, waiting = mutants(tool, tmp_path)[:3]
    store = tool["scores"].Store(tmp_path, target)
    store.add(killed, "killed", "a test", "first", 0.1)
    store.add(survived, "survived", "", "first", 0.1)
    again = tool["scores"].Store(tmp_path, target)
    assert [again.is_due(one, "first", 0.1) for one in (killed, survived, waiting)] == [
        False,
        False,
        True,
    ]
    assert again.is_due(survived, "second", 0.1) and not again.is_due(killed, "second", 0.1)
    assert again.is_due(survived, "first", 0.5), "with slower tests as well"
    changed = mutants(tool, tmp_path, SOURCE.replace("LIMIT = 3", "LIMIT = 4"))
    assert all(again.is_due(one, "first", 0.1) for one in changed)


def test_wilsons_interval(tool: dict[str, ModuleType]) -> None:
    """Values of Newcombe 1998, table I."""
    wilson = tool["scores"].wilson
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


def test_every_equivalent_mutant_has_a_reason(tool: dict[str, ModuleType]) -> None:
    for entry in tool["scores"].equivalents(ROOT).values():
        assert set(entry) == {"id", "module", "change", "why"}
        assert len(entry["why"]) > 20 and (ROOT / entry["module"]).exists()


def test_a_target_that_was_not_run_here_keeps_its_scores(
    tool: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, target = tool["scores"], tool["targets"].Target
    targets = {name: target(name, name, ()) for name in ("here", "there")}
    monkeypatch.setattr(scores, "TARGETS", targets)
    for name in (*targets, "docs", "tests/support"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tests/conftest.py").touch()
    for name in targets:
        (tmp_path / name / "module.py").write_text(SOURCE)
    source = tool["operators"].Source(tmp_path / "there/module.py", tmp_path)
    scores.Store(tmp_path, targets["there"]).add(source.mutants()[0], "killed", "a", "t", 1.0)
    scores.write(tmp_path, "first")
    (tmp_path / "build/mutation/there.jsonl").unlink()
    source = tool["operators"].Source(tmp_path / "here/module.py", tmp_path)
    scores.Store(tmp_path, targets["here"]).add(source.mutants()[0], "survived", "", "t", 1.0)
    scores.write(tmp_path, "second")
    found = json.loads((tmp_path / scores.SCORES).read_text())["targets"]
    assert {name: one["commit"] for name, one in found.items()} == {
        "here": "second",
        "there": "first",
    }
    assert found["there"]["modules"]["there/module.py"]["killed"] == 1
    page = (tmp_path / scores.PAGE).read_text()
    assert "(commit first)" in page and "(commit second)" in page
