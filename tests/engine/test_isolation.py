"""Fits in processes of their own: the same results, and a failure costs its own fit only."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bench.conformance.released import released
from bench.data.dataset import Dataset
from bench.engine.cell import run_cell
from bench.engine.fit import fit_cell
from bench.engine.isolation import processes, wire
from bench.engine.isolation.processes import fit_server, isolated
from bench.engine.isolation.server import Setting
from bench.errors import FitFailedError, InvalidReleaseError, NotApplicable
from bench.plugins import registry
from bench.plugins.release import Detector, TrainedInRounds
from bench.plugins.source import build_dataset
from bench.privacy import accounting
from bench.privacy.events import gaussian, sampled_gaussian
from bench.results.records import Cell, Status, Variant
from tests.support.meddling import install_meddling
from tests.support.tables import ToyImages, ToySurvival, ToyTable

DATASETS = {
    "table": build_dataset(ToyTable()),
    "survival": build_dataset(ToySurvival()),
    "images": build_dataset(ToyImages()),
}
FEW = ("real", "marginals", "ldpdc", "dp-sgd", "fedavg-dp", "federated-anomaly")
REST = tuple(
    name
    for name in registry.method_names()
    if name not in FEW and registry.method_class(name).environment is None
)


def cell_of(method: str, epsilon: float = 1.0, seed: int = 0) -> Cell:
    kind = registry.method_class(method)
    parameters = tuple(kind.quick.items())
    return Cell(
        Variant(method, method, parameters),
        Variant("toy", "toy"),
        ipc=12,
        full_size=False,
        epsilon=epsilon if kind.uses_budget else None,
        delta=1e-5,
        seed=seed,
        split="default",
        split_seed=0,
    )


def same_release(method: str) -> None:
    """The first kind of table that it fits gives the same release here and in a process."""
    cell = cell_of(method)
    reasons = []
    for dataset in DATASETS.values():
        here = fit_cell(cell, dataset)
        with isolated() as fits:
            there = fits.fit(cell, dataset)
            assert (here.status, here.reason) == (there.status, there.reason)
            if here.release is None or there.release is None:
                reasons.append(here.reason)
                continue
            kinds = [
                (isinstance(one.model, TrainedInRounds), isinstance(one.model, Detector))
                for one in (here.release, there.release)
            ]
            assert kinds[0] == kinds[1]
            assert released(here.release, dataset) == released(there.release, dataset)
            assert there.peak_memory_mb is not None and there.seconds is not None
            return
    pytest.skip(f"{method} fits none of the tables: {reasons[0]}")


@pytest.mark.parametrize("method", FEW)
def test_the_same_bytes_as_in_this_process(method: str) -> None:
    same_release(method)
    assert threads_of(fit_server()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", REST)
def test_the_same_bytes_as_in_this_process_for_every_method(method: str) -> None:
    same_release(method)
    assert threads_of(fit_server()) == 1


def threads_of(server: processes.FitServer) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


@pytest.mark.parametrize("method", ["marginals", "dp-sgd"])
def test_metrics_that_fit_again_give_the_same_scores(method: str) -> None:
    cell, dataset = cell_of(method), DATASETS["table"]
    here = run_cell(cell, "key", dataset, ["exposure"])
    with isolated() as fits:
        there = run_cell(cell, "key", dataset, ["exposure"], fits=fits)
    assert here.scores == there.scores and here.row.status == there.row.status


def test_a_model_answers_as_long_as_its_cell_lasts() -> None:
    dataset = DATASETS["table"]
    with isolated() as fits:
        fitted = fits.fit(cell_of("dp-sgd"), dataset)
        assert fitted.release is not None and fitted.release.model is not None
        values = dataset.test.rows.values
        first = fitted.release.model.predict(values)
        assert first.shape[0] == len(values)
        np.testing.assert_array_equal(first, fitted.release.model.predict(values))
    with pytest.raises(FitFailedError, match="gives no predictions"):
        fitted.release.model.predict(values)


# Processes that fail ------------------------------------------------------------------------------


@pytest.fixture
def meddling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The meddling plugin, for a server of its own."""
    packages = install_meddling(tmp_path / "packages")["PYTHONPATH"]
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(processes, "_server", None)
    caches = (registry._load, registry._entry_points, registry._all_entry_points)
    for cache in caches:
        cache.cache_clear()
    yield
    if processes._server is not None:
        processes._server.close()
    for cache in caches:
        cache.cache_clear()


def meddles(how: str) -> Cell:
    return Cell(
        Variant("meddles", how, (("how", how),)), Variant("toy", "toy"), ipc=2, full_size=False,
        epsilon=None, delta=1e-5, seed=0, split="default", split_seed=0,
    )  # fmt: skip


def test_a_server_that_is_lost_is_replaced(meddling: None) -> None:
    dataset = DATASETS["table"]
    first = fit_server()
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    with isolated() as fits:
        assert fits.fit(cell_of("real"), dataset).status is Status.OK
    assert fit_server() is not first
    # In the middle of a fit, it costs this fit.
    server = fit_server()
    with isolated() as fits:
        fits._server.process.kill()
        fits._server.process.wait()
        lost = fits.fit(cell_of("real"), dataset)
        assert (lost.status, lost.reason) == (Status.ERROR, processes._SERVER_LOST)
        with pytest.raises(FitFailedError, match="starts fits was killed"):
            fits.refit(cell_of("real"), dataset, "/again")
    assert not server.usable


def test_a_server_that_is_lost_with_unread_requests_is_named(tmp_path: Path) -> None:
    """The system then answers with a reset connection instead of its end."""
    server = processes.FitServer()
    os.kill(server.process.pid, signal.SIGSTOP)
    server.load(["numpy.fft"])
    server.process.kill()
    server.process.wait()
    with pytest.raises(processes._Lost, match="starts fits was killed"):
        server._listen()
    assert not server.usable
    server.close()


def test_nothing_of_a_server_outlives_its_process(tmp_path: Path) -> None:
    server = processes.FitServer()
    pid = server.process.pid
    server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_generators_that_libraries_share_are_seeded_for_every_fit(meddling: None) -> None:
    cell = Cell(
        Variant("watches", "watches"), Variant("toy", "toy"), ipc=2, full_size=False,
        epsilon=None, delta=1e-5, seed=0, split="default", split_seed=0,
    )  # fmt: skip
    drawn = []
    for _ in range(2):
        with isolated() as fits:
            fitted = fits.fit(cell, DATASETS["table"])
            assert fitted.release is not None, fitted.log
            drawn.append(fitted.release.notes["drawn"])
    assert drawn[0] != drawn[1]


def test_what_a_method_does_to_its_process_stays_there(meddling: None) -> None:
    before = accounting.rdp_epsilon(((gaussian(2.0), 1),), 1e-5)
    for how in ("proof", "default-dtype", "folder"):
        with isolated() as fits:
            assert fits.fit(meddles(how), DATASETS["table"]).status is Status.OK
    with isolated() as fits:
        fitted = fits.fit(cell_of("real"), DATASETS["table"])
    assert fitted.release is not None and fitted.release.ledger is not None
    assert fitted.release.ledger.proof().epsilon == float("inf")
    assert accounting.rdp_epsilon(((gaussian(2.0), 1),), 1e-5) == before


def test_a_refit_that_does_not_apply_or_fails_is_raised_here() -> None:
    with isolated() as fits:
        by_client = next(name for name in REST + FEW if registry.method_class(name).unit)
        counted = replace(cell_of(by_client), private_counts=True)
        with pytest.raises(NotApplicable, match="unit of privacy"):
            fits.refit(counted, DATASETS["table"], "/again")
        wrong = Cell(
            Variant("marginals", "marginals", (("bins", -1),)), Variant("toy", "toy"), ipc=2,
            full_size=False, epsilon=1.0, delta=1e-5, seed=0, split="default", split_seed=0,
        )  # fmt: skip
        with pytest.raises(FitFailedError):
            fits.refit(wrong, DATASETS["table"], "/again")


def test_output_and_temporary_files_are_those_of_the_cell(meddling: None, tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    folder.mkdir(mode=0o700)
    with isolated(Setting(str(folder))) as fits:
        fitted = fits.fit(meddles("no-such-way"), DATASETS["table"])
    assert fitted.status is Status.ERROR and fitted.reason.startswith("AttributeError at meddling")
    assert "do_no_such_way" in fitted.log
    assert (folder / "scratch").is_dir() and (folder / "output.log").stat().st_mode & 0o77 == 0


def test_a_thread_may_fit(meddling: None) -> None:
    """The server must not end with the thread that happens to start it."""
    statuses: list[Status] = []

    def work() -> None:
        with isolated() as fits:
            statuses.append(fits.fit(cell_of("real"), DATASETS["table"]).status)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert statuses == [Status.OK]
    server = fit_server()
    with isolated() as fits:
        assert fits.fit(cell_of("real"), DATASETS["table"]).status is Status.OK
    assert fit_server() is server


# Messages -----------------------------------------------------------------------------------------

numbers = arrays.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "|u1", "|b1"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text().filter(lambda text: text != "\0"), inner, max_size=3)
    ),
    max_leaves=8,
)


def crossed(value: Any) -> Any:
    one, two = socket.socketpair()
    with one, two:
        sender = threading.Thread(target=wire.send, args=(one, value))
        sender.start()
        received = wire.receive(wire.fill_from(two))
        sender.join()
    return received


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, dict):
        return list(one) == list(two) and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(equal, one, two))
    return type(one) is type(two) and (one == two or one != one)


@given(plain)
@settings(deadline=None)
def test_plain_values_cross_as_they_are(value: Any) -> None:
    assert equal(value, crossed(value))


def test_the_order_of_an_array_in_memory_is_kept() -> None:
    table = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    received = crossed(table)
    assert received.flags.f_contiguous and not received.flags.c_contiguous
    np.testing.assert_array_equal(received, table)
    np.testing.assert_array_equal(crossed(table[::2, 1:]), table[::2, 1:])


@pytest.mark.parametrize("value", [{1: 2}, {"\0": 1}, np.array([{}]), np.array(["a"])])
def test_what_is_not_plain_is_not_sent(value: Any) -> None:
    one, two = socket.socketpair()
    with one, two, pytest.raises(wire.WireError):
        wire.send(one, value)


def read(content: bytes) -> Any:
    left = memoryview(content)

    def fill(view: memoryview) -> None:
        nonlocal left
        if len(left) < len(view):
            raise EOFError
        view[:] = left[: len(view)]
        left = left[len(view) :]

    return wire.receive(fill)


hostile = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda text: len(text).to_bytes(8, "big") + text, st.binary(max_size=200)),
    st.builds(
        lambda kind, shape, order, tail: _framed(kind, shape, order) + tail,
        st.sampled_from(["<f8", ">f8", "|O", "<U4", "<M8[s]", "f8,i4", "<c16", "|V8", ""]),
        st.lists(st.integers(-3, 2**70), max_size=12),
        st.sampled_from(["C", "F", "K", ""]),
        st.binary(max_size=40),
    ),
)


def _framed(kind: str, shape: list[int], order: str) -> bytes:
    import json

    heads = [[kind, shape, order]]
    text = json.dumps({"value": {"\0": 0}, "arrays": heads}).encode()
    return len(text).to_bytes(8, "big") + text


@given(hostile)
@settings(deadline=None, max_examples=500)
def test_no_bytes_do_more_than_being_refused(content: bytes) -> None:
    try:
        read(content)
    except (wire.WireError, EOFError):
        return


good: Dataset = DATASETS["table"]


def result() -> dict[str, Any]:
    fitted = fit_cell(cell_of("marginals"), good)
    value: dict[str, Any] = wire.of_result(fitted)
    return value


def altered(path: tuple[Any, ...], what: Any) -> dict[str, Any]:
    value = result()
    place: Any = value
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = what
    return value


@pytest.mark.parametrize(
    "path, what",
    [
        (("release", "rows", 0), np.full((2, 2), np.nan)),
        (("release", "rows", 0), [[1.0]]),
        (("release", "rows"), 7),
        (("release", "rows"), [1, 2, 3, 4, 5]),
        (("release", "claim"), ["abc", 1e-5, "x"]),
        (("release", "claim"), {"epsilon": 1}),
        (("release", "notes"), {"a": [1]}),
        (("release", "notes"), {"a": "\ud800"}),
        (("release", "model"), {"rounds": "many", "threshold": None}),
        (("release", "federation"), {"split": {"count": []}, "transfers": 3}),
        (("release", "ledger"), None),
        (("release", "ledger", "entries"), "none"),
        (("release", "ledger", "entries"), [{"path": 3}]),
        (("release", "ledger", "delta"), 2.0),
        (("release",), None),
        (("status",), "splendid"),
        (("seconds",), -1.0),
        (("seconds",), float("nan")),
        (("reason",), 7),
        (("versions",), ["a"]),
    ],
)
def test_a_result_that_is_none_is_refused(path: tuple[Any, ...], what: Any) -> None:
    fitted = wire.to_result(altered(path, what), good.encoder, lambda facts: pytest.fail("called"))
    assert fitted.status is Status.ERROR and fitted.release is None and fitted.reason


def test_a_ledger_with_another_target_is_refused() -> None:
    value = altered(("release", "ledger", "target_epsilon"), 100.0)
    value["release"]["ledger"]["order"] = accounting.adaptive_order(accounting.Budget(100.0, 1e-5))
    fitted = wire.to_result(value, good.encoder, lambda facts: pytest.fail("called"))
    assert fitted.status is Status.OK
    checked = processes._with_own_target(fitted, cell_of("marginals"))
    assert checked.status is Status.ERROR and InvalidReleaseError.__name__ in checked.reason


# Epsilons -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, 12.0])
def test_epsilons_are_the_same_from_the_other_process(order: float | None) -> None:
    composition = accounting.compose_events(
        [(gaussian(3.0), 2), (sampled_gaussian(0.01, 1.1), 500)]
    )
    expected = accounting.rdp_epsilon(composition, 1e-5, order)
    assert wire.answered(wire.of_composition("rdp", composition, 1e-5, order)) == expected
    convolved = accounting.pld_epsilon(composition, 1e-5)
    assert wire.answered(wire.of_composition("pld", composition, 1e-5, None)) == convolved


@pytest.mark.parametrize(
    "question",
    [{}, {"epsilon": "rdp", "events": [[{}, 1]], "delta": 1e-5, "order": None},
     {"epsilon": "rdp", "events": [[{"kind": "Gaussian", "noise_multiplier": 1.0}, -1]],
      "delta": 1e-5, "order": None},
     {"epsilon": "pld", "events": 7, "delta": "x", "order": []}],
)  # fmt: skip
def test_questions_that_are_none_have_no_answer(question: dict[str, Any]) -> None:
    assert wire.answered(question) is None
