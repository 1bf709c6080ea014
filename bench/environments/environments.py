"""Environments of methods that cannot share ours: where they are, their state, how they are built.

An environment is an overlay: a virtual environment that holds only what its requirements bring and
sees the main packages below them, torch among them. The folder is

    $BENCH_ENVIRONMENTS, or bench/environments in the user's cache folder
        <name>-<digest>/            the virtual environment
            environment.json        the stamp, written last: without a valid one it is not used
        .<name>-<digest>.lock       held while it is built

Virtual environments hold absolute paths, so it is built where it stays. Whoever holds the lock
throws away what an earlier builder left without a stamp. The digest follows what is below as well:
after another Python, torch or place of the main environment it is built anew, in another folder.
"""

from __future__ import annotations

import datetime
import enum
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from bench.environments.overlay import Main, installed, main_environment, make_overlay, probe
from bench.errors import EnvironmentUnavailable, InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.method import Environment

ROOT_VARIABLE = "BENCH_ENVIRONMENTS"
_FORM = 1
_STAMP = "environment.json"
_BUILT = "built in"
_FOLDER = re.compile(r"(?P<name>.+)-[0-9a-f]{16}")

Say = Callable[[str], None]


class State(enum.StrEnum):
    """What there is of an environment."""

    BUILT = "built"
    ABSENT = "not built"
    BROKEN = "broken"
    GIVEN = "given path"


@final
@dataclass(frozen=True)
class Report:
    """An environment as it was found."""

    environment: Environment
    state: State
    python: Path
    """Its interpreter, whether it is there or not."""
    why: str = ""
    """What is wrong with a broken one."""
    size: int = 0
    """Bytes that it takes; 0 for a given path, which is not ours to measure."""
    built_at: str = ""


@final
@dataclass(frozen=True)
class Prepared:
    """How making an environment ready on one machine went."""

    machine: str
    python: str
    """The interpreter; empty where there is a problem."""
    problem: str = ""
    built: str = ""
    """The seconds and the size of a build, in words; empty where it was there."""


def root() -> Path:
    """The folder that holds all environments."""
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "bench" / "environments"


def folder(environment: Environment) -> Path:
    """Where an environment is, upon the main environment that runs this."""
    main = main_environment()
    places = [str(path) for path in main.packages]
    content = [_FORM, environment.digest, main.python, places, main.versions.get("torch")]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    return root() / f"{environment.name}-{digest}"


def path_variable(environment: Environment) -> str:
    """The variable that names an interpreter to use instead of building one."""
    return "BENCH_ENVIRONMENT_" + re.sub(r"[^A-Z0-9]", "_", environment.name.upper())


def given_path(environment: Environment) -> str:
    """The interpreter that the user names for an environment; empty without one."""
    return os.environ.get(path_variable(environment), "")


def known() -> Mapping[str, Environment]:
    """The environments of all methods, by name."""
    found: dict[str, tuple[Environment, str]] = {}
    for method in registry.method_names():
        environment = registry.method_class(method).environment
        if environment is None:
            continue
        other, owner = found.setdefault(environment.name, (environment, method))
        if other != environment:
            raise InputError(
                f"environment {environment.name!r} is not the same in the methods {owner} and "
                f"{method}; give one of them another name"
            )
    return {name: environment for name, (environment, _) in sorted(found.items())}


def select(names: Iterable[str]) -> tuple[Environment, ...]:
    """Environments by name; all of them where none is named."""
    everything = known()
    for name in names:
        if name not in everything:
            raise UnknownNameError("environment", name, everything or {"(none)"})
    return tuple(everything[name] for name in (dict.fromkeys(names) or everything))


def inside(environment: Environment) -> bool:
    """True when this process runs in that environment."""
    if _stamp(Path(sys.prefix), environment) is not None:
        return True
    given = given_path(environment)
    return bool(given) and Path(given).absolute() == Path(sys.executable).absolute()


def inspect(environment: Environment, thorough: bool = False, given: str = "") -> Report:
    """The state of an environment. With `thorough` its modules are imported, which takes seconds.

    Otherwise the interpreter is started and asked where it would find them.
    """
    given = given or given_path(environment)
    if given:
        python = Path(given).expanduser()
        why = probe(python, environment, main_environment(), thorough=thorough, given=True)
        return Report(environment, State.BROKEN if why else State.GIVEN, python, why)
    place = folder(environment)
    python = place / "bin" / "python"
    if not place.exists():
        return Report(environment, State.ABSENT, python)
    stamp = _stamp(place, environment)
    if stamp is None:
        why = "its build did not finish"
    else:
        why = probe(python, environment, main_environment(), thorough=thorough)
    return Report(
        environment,
        State.BROKEN if why else State.BUILT,
        python,
        why,
        size=_size(place),
        built_at="" if stamp is None else str(stamp.get("built_at", "")),
    )


def ensure(
    environment: Environment, say: Say = lambda text: None, given: str = "", thorough: bool = False
) -> Path:
    """The interpreter of an environment, which is built or repaired first where that is needed.

    Raises `EnvironmentUnavailable` with one line that says why it cannot be had.
    """
    report = inspect(environment, thorough, given)
    if report.state in (State.BUILT, State.GIVEN):
        return report.python
    if given or given_path(environment):
        raise EnvironmentUnavailable(
            environment.name,
            f"used: {report.python} (from {path_variable(environment)}): {report.why}",
        )
    place = folder(environment)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place, lambda: say("another process is building it; waiting")) as lock:
            # Whoever held the lock may have built it.
            report = inspect(environment, thorough)
            if report.state is not State.BUILT:
                if report.state is State.BROKEN:
                    say(f"broken ({report.why}); building it again")
                _build(environment, place, lock, say)
    except OSError as problem:
        raise EnvironmentUnavailable(environment.name, f"built: {_said(problem)}") from problem
    return place / "bin" / "python"


def prepare(environment: Environment, given: str = "") -> Prepared:
    """Make an environment ready on this machine, for a task there: a failure is an answer."""
    said = [""]
    python, problem = "", ""
    try:
        python = str(ensure(environment, said.append, given))
    except EnvironmentUnavailable as reason:
        problem = str(reason)
    built = said[-1] if said[-1].startswith(_BUILT) else ""
    return Prepared(platform.node(), python, problem, built)


def clean(names: Iterable[str] = ()) -> Iterator[tuple[str, int]]:
    """Remove environments, of earlier digests too; yields each folder's name and bytes freed.

    Without names all of them go, also those of methods that are no longer installed.
    """
    wanted = set(names)
    place = root()
    for path in sorted(place.iterdir()) if place.is_dir() else []:
        match = _FOLDER.fullmatch(path.name)
        if not match or not path.is_dir() or (wanted and match["name"] not in wanted):
            continue
        size = _size(path)
        with _locked(path, lambda: None):
            _remove(path)
        yield path.name, size


def _build(environment: Environment, place: Path, lock: int, say: Say) -> None:
    """Make the overlay in its place; whatever goes wrong, nothing half-built stays."""
    started = time.perf_counter()
    main = main_environment()
    _remove(place)
    try:
        make_overlay(environment, place, main, lock, say)
        say(f"importing {', '.join(environment.modules) or 'bench'}")
        why = probe(place / "bin" / "python", environment, main, thorough=True)
        if why:
            raise EnvironmentUnavailable(environment.name, f"built: {why}")
        _write_stamp(environment, place, main, time.perf_counter() - started)
    except BaseException:
        _remove(place)
        raise
    seconds = time.perf_counter() - started
    say(f"{_BUILT} {seconds:.0f} s, {_size(place) / 1e6:.0f} MB in {place}")


def _write_stamp(environment: Environment, place: Path, main: Main, seconds: float) -> None:
    stamp = {
        "form": _FORM,
        "name": environment.name,
        "digest": environment.digest,
        "requirements": list(environment.requirements),
        "modules": list(environment.modules),
        "python": main.python,
        "main": [str(path) for path in main.packages],
        "main_versions": dict(main.versions),
        "versions": dict(installed(place)),
        "seconds": round(seconds, 1),
        "built_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    temporary = place / f".{_STAMP}.part"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(stamp, indent=1))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(place / _STAMP)


def _stamp(place: Path, environment: Environment) -> Mapping[str, Any] | None:
    """The stamp of a finished build of this environment; None without a valid one."""
    try:
        stamp = json.loads((place / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    good = (
        isinstance(stamp, dict)
        and stamp.get("form") == _FORM
        and stamp.get("digest") == environment.digest
    )
    return stamp if good else None


@contextmanager
def _locked(place: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of a folder. The operating system frees it when its holder dies."""
    with (place.parent / f".{place.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _remove(place: Path) -> None:
    # The stamp first: an interrupted removal must not look finished.
    (place / _STAMP).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def _size(place: Path) -> int:
    # As `du` does it, without following links: the interpreter is one.
    total = 0
    for current, _, files in os.walk(place):
        for name in files:
            try:
                total += os.lstat(os.path.join(current, name)).st_size
            except FileNotFoundError:
                continue  # removed meanwhile by who is building it
    return total


def _said(problem: OSError) -> str:
    if isinstance(problem, subprocess.SubprocessError):
        return str(problem)
    where = f": {problem.filename}" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"
