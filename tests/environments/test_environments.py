"""Overlay environments: built once, checked, repaired; the main environment never changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from bench.engine import keys
from bench.environments import overlays
from bench.environments.overlays import EnvironmentState, ensure, inspect
from bench.errors import EnvironmentUnavailable, InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.method import Environment
from bench.results.records import Cell, Variant
from tests.support.isolated import EMPTY, TINY, without_index, write_wheel

SMARTNOISE = Environment(
    "smartnoise",
    (
        "smartnoise-synth==1.0.8",
        "diffprivlib==0.6.6",
        "scikit-learn>=1.7,<1.8",
        "setuptools<81",
    ),
    ("snsynth", "diffprivlib"),
)

BUILDER = """
import resource, sys, time
from bench.environments import overlays
from bench.plugins.method import Environment
from bench.errors import EnvironmentUnavailable

seconds, largest = float(sys.argv[1]), int(sys.argv[2])
write_stamp = overlays._write_stamp

def slowly(*arguments):
    print("last step", flush=True)
    time.sleep(seconds)
    write_stamp(*arguments)

overlays._write_stamp = slowly
if largest:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
tiny = Environment("tiny", ("tinypackage==1.0",), ("tinypackage",))
try:
    overlays.ensure(
        tiny if largest else Environment("empty", (), ()), lambda text: print(text, flush=True)
    )
except EnvironmentUnavailable as problem:
    print(problem)
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place where pip searches."""
    folder = tmp_path / "wheels"
    for name, value in without_index(tmp_path / "environments", folder).items():
        monkeypatch.setenv(name, value)
    return folder


def asked(python: Path, code: str) -> str:
    command = [str(python), "-P", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def builder(seconds: float = 0.0, largest: int = 0) -> subprocess.Popen[str]:
    """Another process that builds; it waits before it writes the stamp."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BUILDER, str(seconds), str(largest)],
        stdout=subprocess.PIPE,
        text=True,
    )


def folders(tmp_path: Path) -> list[str]:
    root = tmp_path / "environments"
    return [path.name for path in root.iterdir() if path.is_dir()]


def test_an_environment_without_requirements_sees_all_of_ours(wheels: Path) -> None:
    assert inspect(EMPTY).state is EnvironmentState.ABSENT
    python = ensure(EMPTY)
    # `bench` is an editable install: found through a path file inside the main packages.
    prefix, bench, torch = asked(
        python,
        "import sys, bench, importlib.util as u;"
        "print(sys.prefix, bench.__file__, u.find_spec('torch').origin, sep='\\n')",
    ).splitlines()
    assert Path(prefix) == overlays.folder(EMPTY) and prefix != sys.prefix
    assert bench == __import__("bench").__file__
    assert torch == overlays.main_environment().torch
    assert inspect(EMPTY, thorough=True).state is EnvironmentState.BUILT


def test_packages_of_the_overlay_take_precedence_and_the_main_ones_stay(wheels: Path) -> None:
    write_wheel(wheels, requires=("iniconfig==0.0.1",))
    write_wheel(wheels, "iniconfig", "0.0.1", "OLD = True\n")
    before = metadata.version("iniconfig")
    said: list[str] = []
    python = ensure(TINY, said.append)
    code = "import iniconfig, tinypackage; print(iniconfig.OLD, tinypackage.ANSWER)"
    assert asked(python, code) == "True 42"
    ours = asked(Path(sys.executable), "import iniconfig; print(hasattr(iniconfig, 'OLD'))")
    assert ours == "False" and metadata.version("iniconfig") == before != "0.0.1"
    stamp = json.loads((overlays.folder(TINY) / "environment.json").read_text())
    assert stamp["versions"] == {"iniconfig": "0.0.1", "tinypackage": "1.0"}
    assert stamp["requirements"] == ["tinypackage==1.0"] and stamp["built_at"]
    assert any("tinypackage-1.0" in line for line in said) and "built in" in said[-1]
    again: list[str] = []
    assert ensure(TINY, again.append) == python and again == []


def test_torch_is_never_installed_in_an_overlay(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "torch", "99.0", "")
    write_wheel(wheels, requires=("torch",))
    python = ensure(TINY)
    assert asked(python, "import importlib.metadata as m; print(m.version('torch'))") == (
        metadata.version("torch")
    )
    demanding = Environment("demanding", ("torch==99.0",), ())
    with pytest.raises(EnvironmentUnavailable, match="torch") as problem:
        ensure(demanding)
    assert "\n" not in str(problem.value)
    assert len(folders(tmp_path)) == 1
    # A copy placed there by hand is detected.
    (overlays._packages(python.parent.parent) / "torch.py").write_text("")
    assert "torch is loaded from" in inspect(TINY).why


@pytest.mark.parametrize("damage", ["stamp", "torn stamp", "interpreter"])
def test_a_broken_environment_is_reported_and_rebuilt(wheels: Path, damage: str) -> None:
    python = ensure(EMPTY)
    place = overlays.folder(EMPTY)
    expected = "its build did not finish"
    match damage:
        case "stamp":
            (place / "environment.json").unlink()
        case "torn stamp":
            (place / "environment.json").write_text('{"format_version": 1, "dig')
        case _:
            python.unlink()
            python.write_text("#!/bin/sh\nexit 3\n")
            python.chmod(0o755)
            expected = "interpreter does not run"
    report = inspect(EMPTY)
    assert report.state is EnvironmentState.BROKEN and expected in report.why
    said: list[str] = []
    ensure(EMPTY, said.append)
    assert said[0].startswith("broken (")
    assert inspect(EMPTY, thorough=True).state is EnvironmentState.BUILT


def test_a_damaged_package_is_found_by_importing_it(wheels: Path) -> None:
    write_wheel(wheels)
    ensure(TINY)
    module = overlays._packages(overlays.folder(TINY)) / "tinypackage.py"
    module.write_text("raise RuntimeError('no such device')")
    assert inspect(TINY).state is EnvironmentState.BUILT
    report = inspect(TINY, thorough=True)
    assert report.why == "import tinypackage fails: RuntimeError: no such device"
    module.unlink()
    assert "import tinypackage fails: ModuleNotFoundError" in inspect(TINY).why
    ensure(TINY)
    assert inspect(TINY, thorough=True).state is EnvironmentState.BUILT


def test_two_builders_at_once_make_one_build(wheels: Path) -> None:
    first = builder(seconds=2)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("last step"):
            break
    second = builder()
    one, two = (process.communicate(timeout=600)[0] for process in (first, second))
    assert one.startswith("built in")
    assert two == "another process is building it; waiting\n"
    assert inspect(EMPTY).state is EnvironmentState.BUILT


def test_after_a_killed_builder_the_environment_is_rebuilt_without_waiting(wheels: Path) -> None:
    process = builder(seconds=60)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("last step"):
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    report = inspect(EMPTY)
    assert report.state is EnvironmentState.BROKEN and "did not finish" in report.why
    said: list[str] = []
    ensure(EMPTY, said.append)
    assert "waiting" not in " ".join(said)
    assert inspect(EMPTY).state is EnvironmentState.BUILT


def test_the_child_of_a_killed_builder_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    """Otherwise an orphaned pip would write into the folder of the next builder."""
    code = (
        "import sys; from pathlib import Path; from bench.environments import overlays as e\n"
        "with e._locked(Path(sys.argv[1]), lambda: None) as lock:\n"
        "    print('locked', flush=True)\n"
        "    e._run(None, ['sleep', '1.5'], Path('/'), lock)\n"
    )
    place = tmp_path / "place"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        waited: list[bool] = []
        started = time.perf_counter()
        with overlays._locked(place, lambda: waited.append(True)):
            assert waited == [True]
            assert 0.3 < time.perf_counter() - started < 5


def test_a_requirement_that_does_not_exist_is_one_clear_line(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable) as problem:
        ensure(Environment("odd", ("no-such-package==1.0",), ()))
    assert str(problem.value) == (
        "environment odd cannot be built: No matching distribution found for no-such-package==1.0"
    )
    assert folders(tmp_path) == []


def test_a_module_that_cannot_be_imported_fails_the_build(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match="No module named 'no_such_module'"):
        ensure(Environment("odd", (), ("no_such_module",)))
    assert folders(tmp_path) == []


def test_a_full_disk_is_reported_and_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    """Files may not grow above 400 kB, as an installed package would."""
    write_wheel(wheels, padding=1_000_000)
    process = builder(largest=400_000)
    said = process.communicate(timeout=600)[0].splitlines()[-1]
    assert said.startswith("environment tiny cannot be built: ") and "File too large" in said
    assert folders(tmp_path) == []


def test_a_full_disk_at_the_stamp_leaves_nothing(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentUnavailable, match="built: No space left on device"):
        ensure(EMPTY)
    assert folders(tmp_path) == []


def test_a_folder_that_cannot_be_created_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BENCH_ENVIRONMENTS", str(tmp_path / "file" / "inside"))
    with pytest.raises(EnvironmentUnavailable, match="cannot be built: Not a directory"):
        ensure(EMPTY)


def test_a_given_interpreter_is_used_and_nothing_built(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ensure(EMPTY)
    other = replace(EMPTY, name="of-the-cluster")
    monkeypatch.setenv("BENCH_ENVIRONMENT_OF_THE_CLUSTER", str(given))
    assert inspect(other).state is EnvironmentState.GIVEN
    assert ensure(other) == given and len(folders(tmp_path)) == 1
    monkeypatch.setenv("BENCH_ENVIRONMENT_OF_THE_CLUSTER", "/nowhere/python")
    with pytest.raises(EnvironmentUnavailable, match=r"cannot be used: /nowhere/python .*no such"):
        ensure(other)


@pytest.mark.parametrize(
    ("lines", "meaning"),
    [
        (
            [
                "ERROR: Cannot install a and b because of conflicts.",
                "ERROR: ResolutionImpossible: x",
            ],
            "Cannot install a and b because of conflicts.",
        ),
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left", ""],
            "Could not install packages due to an OSError: [Errno 28] No space left",
        ),
        (
            [
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnection'",
                "ERROR: No matching distribution found for a",
            ],
            "the package index cannot be reached (No matching distribution found for a)",
        ),
        (["Traceback", "KeyError: 'x'"], "KeyError: 'x'"),
        ([], ""),
    ],
)
def test_the_meaningful_line_of_pip_is_found(lines: list[str], meaning: str) -> None:
    assert overlays._meaning(lines) == meaning


def test_another_main_environment_has_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    main = overlays.main_environment()
    places = set()
    for changed in (
        main,
        replace(main, python="3.99.0"),
        replace(main, packages=(Path("/elsewhere"),)),
        replace(main, versions={**main.versions, "torch": "0.1"}),
    ):
        monkeypatch.setattr(overlays, "main_environment", lambda changed=changed: changed)
        places.add(overlays.folder(EMPTY))
    places.add(overlays.folder(replace(EMPTY, requirements=("a",))))
    assert len(places) == 5


def test_clean_removes_named_and_outdated_environments(wheels: Path, tmp_path: Path) -> None:
    root = tmp_path / "environments"
    for name in ("tiny-0123456789abcdef", "tiny-side-0123456789abcdef", "not ours"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("12345")
    assert list(overlays.clean(["tiny"])) == [("tiny-0123456789abcdef", 5)]
    assert [name for name, _ in overlays.clean()] == ["tiny-side-0123456789abcdef"]
    assert folders(tmp_path) == ["not ours"]


def test_a_cell_depends_on_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(
        Variant("ldpdc", "ldpdc"), Variant("gbsg2", "gbsg2"), 5, False, 1.0, 1e-5, 0, "default", 0
    )
    kind = registry.method_class("ldpdc")
    cell_keys = {keys.cell_key(cell, "a")}
    for environment in (EMPTY, TINY):
        monkeypatch.setattr(kind, "environment", environment)
        cell_keys.add(keys.cell_key(cell, "a"))
    assert len(cell_keys) == 3


def test_one_name_is_one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "method_names", lambda: ("ldpdc", "marginals"))
    for name, environment in (("ldpdc", EMPTY), ("marginals", replace(EMPTY, modules=("json",)))):
        monkeypatch.setattr(registry.method_class(name), "environment", environment)
    with pytest.raises(InputError, match="not the same in the methods ldpdc and marginals"):
        overlays.known()
    monkeypatch.setattr(registry.method_class("marginals"), "environment", EMPTY)
    assert overlays.select([]) == overlays.select(["empty"]) == (EMPTY,)
    with pytest.raises(UnknownNameError, match="unknown environment 'emty'; did you mean empty"):
        overlays.select(["emty"])


@pytest.mark.isolated
def test_smartnoise_has_another_opacus_than_the_main_environment() -> None:
    python = ensure(SMARTNOISE)
    assert inspect(SMARTNOISE, thorough=True).why == ""
    code = "import importlib.metadata as m; print(m.version('opacus'))"
    assert asked(python, code).startswith("0.14.")
    assert not metadata.version("opacus").startswith("0.")
    checked = subprocess.run([sys.executable, "-P", "-m", "pip", "check"], check=False)
    assert checked.returncode == 0


def test_an_old_numpy_gets_the_name_by_which_arrays_are_sent(tmp_path: Path) -> None:
    """numpy 1.26 in an overlay has to read arrays of numpy 2."""
    numpy = tmp_path / "numpy"
    overlays.read_newer_arrays(tmp_path)  # the overlay shares the main numpy
    assert not numpy.exists()
    (numpy / "_core").mkdir(parents=True)
    (numpy / "__init__.py").touch()
    (numpy / "_core" / "__init__.py").touch()
    overlays.read_newer_arrays(tmp_path)  # numpy 2: no `core`
    assert not (numpy / "_core" / "numeric.py").exists()
    (numpy / "core").mkdir()
    (numpy / "core" / "__init__.py").touch()
    (numpy / "core" / "numeric.py").write_text("def _frombuffer():\n    return 'read'\n")
    overlays.read_newer_arrays(tmp_path)
    code = "from numpy._core.numeric import _frombuffer; print(_frombuffer())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "read\n"
