"""References that the processes of a run share: same bytes, one builder, nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression

from bench.engine import code, references
from bench.engine.references import KeptReferences, references_folder, shared_references
from bench.errors import NotComputable
from bench.plugins import metric, registry
from bench.plugins.metric import Evaluation, References, keeping_references
from bench.plugins.reference_values import put_together, taken_apart
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.support.tables import ToySurvival, ToyTable


@dataclass(frozen=True)
class Distances:
    """A value such as metrics keep."""

    near: np.ndarray
    names: tuple[str, ...]
    by_class: dict[int, float]
    none: None = None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(references, "WORTH_KEEPING", 0.0)
    return tmp_path


def draw(rng: np.random.Generator) -> np.ndarray:
    return rng.random(5)


# Values ------------------------------------------------------------------------------------------


def test_values_are_put_together_as_they_were():
    value = Distances(
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), ("a", "b"), {1: float("nan"), 2: 0.1}
    )
    again = put_together(taken_apart((value, [np.float32(0.1), True, 2**70, "x", None])))
    assert again[0].near.tobytes("A") == value.near.tobytes("A")
    assert again[0].near.flags.f_contiguous
    assert again[0].names == value.names
    assert np.isnan(again[0].by_class[1])
    assert again[0].by_class[2] == 0.1
    assert again[1] == [np.float32(0.1), True, 2**70, "x", None]
    assert isinstance(again[1][0], np.float32)


def test_a_booster_answers_as_before():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 4)).astype(np.float32)
    asked = xgboost.DMatrix(values, label=values[:, 0] > 0)
    parameters = {"objective": "binary:logistic", "max_depth": 4, "subsample": 0.7}
    booster = xgboost.train(parameters, asked, 20)
    again = put_together(taken_apart({"model": booster}))["model"]
    for options in ({}, {"output_margin": True}, {"pred_contribs": True}):
        expected = booster.predict(asked, **options)
        assert again.predict(asked, **options).tobytes() == expected.tobytes()


def test_what_is_neither_array_nor_plain_is_not_taken_apart():
    @dataclass(frozen=True)
    class Local:
        value: int

    assert taken_apart(LogisticRegression()) is None
    assert taken_apart((1, Local(1))) is None
    assert taken_apart(np.array([object()])) is None
    assert taken_apart({"f": draw}) is None


@pytest.mark.parametrize(
    "tree",
    [
        ["dataclass", "os", "system", {"command": ["plain", "true"]}],
        ["dataclass", "not.imported", "Thing", {}],
        ["dataclass", __name__, "Distances", {"other": ["plain", 1]}],
        ["array", 3],
        ["pickle", "x"],
        "plain",
        [],
    ],
)
def test_parts_of_no_value_are_refused(tree: object):
    parts = replace(taken_apart(1), tree=tree)
    with pytest.raises(ValueError, match=r"value|dataclass|kind|unpack"):
        put_together(parts)


# Files -------------------------------------------------------------------------------------------


def kept(folder: Path, build=draw, purpose: str = "p", dataset: bytes = b"d") -> np.ndarray:
    """What a new process gets."""
    with keeping_references(KeptReferences(folder)):
        return References(dataset).get(purpose, build)


def test_another_process_reads_what_one_has_built(folder: Path):
    alone = References(b"d").get("p", draw)
    first = kept(folder)
    calls = Counter[str]()

    def counted(rng: np.random.Generator) -> np.ndarray:
        calls["built"] += 1
        return draw(rng)

    built, again = kept(folder, counted, "q"), kept(folder, counted, "q")
    assert calls["built"] == 1
    assert built.tobytes() == again.tobytes()
    assert first.tobytes() == alone.tobytes()
    assert kept(folder, purpose="other").tobytes() != first.tobytes()
    assert kept(folder, dataset=b"e").tobytes() != first.tobytes()


def test_what_was_built_fast_is_not_written(tmp_path: Path):
    kept(tmp_path)
    assert list(tmp_path.glob("*.npz")) == []


def test_files_are_the_owners_alone(folder: Path):
    kept(folder)
    files = list(folder.iterdir())
    assert any(file.suffix == ".npz" for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_names_follow_from_what_the_code_does(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Also that of a function which was given to the one that builds."""
    home = folder / "modules"
    home.mkdir()
    monkeypatch.syspath_prepend(str(home))

    def name(body: str) -> str | None:
        (home / "made_here.py").write_text(f"def inner(rng):\n    {body}\n")
        code.forget()
        monkeypatch.delitem(sys.modules, "made_here", raising=False)
        import made_here

        inner = made_here.inner
        names = {
            references._key(b"d", "p", build)
            for build in (lambda rng: inner(rng), functools.partial(draw, inner))
        }
        assert len(names) == 1
        return names.pop()

    first = name("return 1")
    assert first == name("return 1  # a comment")
    assert first != name("return 2")
    assert first != references._key(b"d", "p", draw)
    code.forget()


@pytest.mark.parametrize("damage", ["cut", "pickled", "empty"])
def test_a_damaged_file_is_built_again(folder: Path, damage: str):
    first = kept(folder)
    (file,) = folder.glob("*.npz")
    if damage == "pickled":
        np.savez(file, tree=np.array([Exception("would be called")], dtype=object))
    else:
        file.write_bytes(file.read_bytes()[:100] if damage == "cut" else b"")
    assert kept(folder).tobytes() == first.tobytes()
    assert kept(folder, lambda rng: pytest.fail("was replaced")).any()


def test_one_builds_and_the_others_wait(folder: Path):
    """Locks belong to open files, so that threads wait as processes do."""
    calls, found = Counter[str](), []
    begun = threading.Barrier(4)

    def slow() -> np.ndarray:
        calls["built"] += 1
        time.sleep(0.1)
        return np.arange(3.0)

    def work() -> None:
        begun.wait()
        found.append(KeptReferences(folder)(b"d", "p", draw, slow))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls["built"] == 1
    assert [value.tolist() for value in found] == [[0.0, 1.0, 2.0]] * 4


def test_who_waits_too_long_builds_too(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(references, "_WAIT_SECONDS", 0.05)
    keeper = KeptReferences(folder)
    with keeper._only_builder(references._key(b"d", "p", draw)):
        assert kept(folder).tobytes() == References(b"d").get("p", draw).tobytes()


def test_without_the_folder_it_is_built_per_process(folder: Path):
    gone = folder / "gone"
    assert kept(gone).tobytes() == References(b"d").get("p", draw).tobytes()
    with shared_references(str(gone)):
        assert metric._KEEPER.get() is None
    with shared_references(str(folder)):
        assert metric._KEEPER.get() is not None


def test_nothing_is_left_when_a_run_ends(tmp_path: Path):
    left = tmp_path / "references-of-a-killed-run"
    left.mkdir()
    (left / "x.npz").touch()
    with references_folder(tmp_path) as folder:
        assert not left.exists()
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        (folder / "y.npz").touch()
    assert list(tmp_path.iterdir()) == []


# Metrics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [ToyTable(), ToySurvival()], ids=["classes", "survival"])
def test_scores_are_the_same_whether_references_are_built_or_read(source, folder: Path):
    dataset = build_dataset(source)
    rows = dataset.test.rows
    release = Release(Rows(rows.values, rows.labels))
    names = ["auroc", "c-index", "shap", "regression", "brier", "hazard-ratios", "dcr", "aia"]
    names += ["domias", "sample-correlation", "pmse", "subgroups"]
    chosen = [registry.metric(name) for name in names if name in registry.select_metrics(["all"])]

    def scores() -> list[object]:
        metric._KEPT.clear()
        evaluation = Evaluation(dataset, release, 0)
        found: list[object] = []
        for one in chosen:
            if dataset.task in one.tasks:
                with contextlib.suppress(NotComputable):
                    found += one.compute(evaluation).scores
        return found

    alone = scores()
    with shared_references(str(folder)):
        built = scores()
        files = {file.name for file in folder.glob("*.npz")}
        read = scores()
    assert len(files) > 5
    assert len(alone) > 20
    assert {file.name for file in folder.glob("*.npz")} == files
    assert repr(alone) == repr(built) == repr(read)
