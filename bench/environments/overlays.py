"""Overlay environments of methods: where they are, their state, how they are built and probed.

An overlay is a virtual environment above the main one: it holds only the packages that its
requirements install, and shares all others, torch among them, with the main environment. Folders:

    $BENCH_ENVIRONMENTS, or bench/environments in the user's cache folder
        <name>-<digest>/            the virtual environment
            environment.json        the stamp, written last: without a valid one it is not used
        .<name>-<digest>.lock       held while it is built

Virtual environments hold absolute paths, so an overlay is built in its final folder. The holder of
the lock removes what an earlier builder left without a stamp. The digest also depends on the main
environment: another Python, torch or location needs another overlay, in another folder.

A path configuration file in the overlay runs `site.addsitedir` on the main packages. A plain path
there would extend `sys.path` too, but skip the configuration files in that folder, and with them
every editable install. The overlay's own packages come first and take precedence.
"""

from __future__ import annotations

import datetime
import enum
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, final

from bench.errors import EnvironmentUnavailable, InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.method import Environment

ROOT_VARIABLE = "BENCH_ENVIRONMENTS"
_FORMAT_VERSION = 1
_STAMP = "environment.json"
_BUILT = "built in"
_FOLDER = re.compile(r"(?P<name>.+)-[0-9a-f]{16}")

SHARED = ("torch", "ray", "dp-accounting")
"""Never installed into an overlay: torch for its size, the others because they exchange data with
the main process."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SECONDS_TO_ANSWER = 300
_PROGRESS = re.compile(
    r"(Collecting|Processing|Building wheel for|Installing collected packages)\b"
)

_QUESTIONS = """
import importlib, importlib.metadata, importlib.util, json, platform, sys
modules, shared, thorough = json.loads(sys.argv[1])
answer = {"python": platform.python_version(), "problem": "", "versions": {}, "torch": None}
for name in shared:
    try:
        answer["versions"][name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
torch = importlib.util.find_spec("torch")
answer["torch"] = torch and torch.origin
for name in ("bench", *modules):
    try:
        if thorough:
            importlib.import_module(name)
        elif importlib.util.find_spec(name.split(".")[0]) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
    except BaseException as problem:
        answer["problem"] = f"import {name} fails: {type(problem).__name__}: {problem}"
        break
print("\\n" + json.dumps(answer))
"""

Say = Callable[[str], None]


class EnvironmentState(enum.StrEnum):
    """State of an environment on this machine."""

    BUILT = "built"
    ABSENT = "not built"
    BROKEN = "broken"
    GIVEN = "given path"


@final
@dataclass(frozen=True)
class EnvironmentReport:
    """State of one environment, with the details that `bench env list` shows."""

    environment: Environment
    state: EnvironmentState
    python: Path
    """Its interpreter, which need not exist."""
    why: str = ""
    """Why a broken environment cannot be used."""
    size: int = 0
    """Size in bytes; 0 for a given path, which is not measured."""
    built_at: str = ""


@final
@dataclass(frozen=True)
class PreparedEnvironment:
    """Result of making an environment ready on one machine."""

    machine: str
    python: str
    """The interpreter; empty where there is a problem."""
    problem: str = ""
    built: str = ""
    """Duration and size of the build as text; empty where none was needed."""


def root() -> Path:
    """Return the folder that holds all environments."""
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "bench" / "environments"


def folder(environment: Environment) -> Path:
    """Return the folder of an environment above the main environment of this process."""
    main = main_environment()
    places = [str(path) for path in main.packages]
    content = [_FORMAT_VERSION, environment.digest, main.python, places, main.versions.get("torch")]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    return root() / f"{environment.name}-{digest}"


def path_variable(environment: Environment) -> str:
    """Return the variable that names an interpreter to use instead of building one."""
    return "BENCH_ENVIRONMENT_" + re.sub(r"[^A-Z0-9]", "_", environment.name.upper())


def given_path(environment: Environment) -> str:
    """Return the interpreter that the user names for an environment; empty without one."""
    return os.environ.get(path_variable(environment), "")


def known() -> Mapping[str, Environment]:
    """Return the environments of all methods, by name."""
    owners: dict[str, tuple[Environment, str]] = {}
    for method in registry.method_names():
        environment = registry.method_class(method).environment
        if environment is None:
            continue
        other, owner = owners.setdefault(environment.name, (environment, method))
        if other != environment:
            raise InputError(
                f"environment {environment.name!r} is not the same in the methods {owner} and "
                f"{method}; give one of them another name"
            )
    return {name: environment for name, (environment, _) in sorted(owners.items())}


def select(names: Iterable[str]) -> tuple[Environment, ...]:
    """Return environments by name; all of them where none is named."""
    by_name = known()
    for name in names:
        if name not in by_name:
            raise UnknownNameError("environment", name, by_name or {"(none)"})
    return tuple(by_name[name] for name in (dict.fromkeys(names) or by_name))


def inside(environment: Environment) -> bool:
    """Whether this process runs in that environment."""
    if _stamp(Path(sys.prefix), environment) is not None:
        return True
    given = given_path(environment)
    return bool(given) and Path(given).absolute() == Path(sys.executable).absolute()


def inspect(environment: Environment, thorough: bool = False, given: str = "") -> EnvironmentReport:
    """Return the state of an environment; `thorough` imports its modules, which takes seconds.

    Otherwise its interpreter only reports where it would find them.
    """
    given = given or given_path(environment)
    if given:
        python = Path(given).expanduser()
        why = probe(python, environment, main_environment(), thorough=thorough, given=True)
        return EnvironmentReport(
            environment, EnvironmentState.BROKEN if why else EnvironmentState.GIVEN, python, why
        )
    place = folder(environment)
    python = place / "bin" / "python"
    if not place.exists():
        return EnvironmentReport(environment, EnvironmentState.ABSENT, python)
    stamp = _stamp(place, environment)
    if stamp is None:
        why = "its build did not finish"
    else:
        why = probe(python, environment, main_environment(), thorough=thorough)
    return EnvironmentReport(
        environment,
        EnvironmentState.BROKEN if why else EnvironmentState.BUILT,
        python,
        why,
        size=_size(place),
        built_at="" if stamp is None else str(stamp.get("built_at", "")),
    )


def ensure(
    environment: Environment, say: Say = lambda text: None, given: str = "", thorough: bool = False
) -> Path:
    """Return the interpreter of an environment, which is built or repaired first if necessary.

    Raises `EnvironmentUnavailable` with one line that states why it cannot be used or built.
    """
    report = inspect(environment, thorough, given)
    if report.state in (EnvironmentState.BUILT, EnvironmentState.GIVEN):
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
            # The earlier holder of the lock may have built it.
            report = inspect(environment, thorough)
            if report.state is not EnvironmentState.BUILT:
                if report.state is EnvironmentState.BROKEN:
                    say(f"broken ({report.why}); building it again")
                _build(environment, place, lock, say)
    except OSError as problem:
        raise EnvironmentUnavailable(environment.name, f"built: {_message(problem)}") from problem
    return place / "bin" / "python"


def prepare(environment: Environment, given: str = "") -> PreparedEnvironment:
    """Make an environment ready on this machine, for a task there: a failure is a result."""
    messages = [""]
    python, problem = "", ""
    try:
        python = str(ensure(environment, messages.append, given))
    except EnvironmentUnavailable as reason:
        problem = str(reason)
    built = messages[-1] if messages[-1].startswith(_BUILT) else ""
    return PreparedEnvironment(platform.node(), python, problem, built)


def clean(names: Iterable[str] = ()) -> Iterator[tuple[str, int]]:
    """Remove environments, also of earlier digests; yield each folder's name and bytes freed.

    Without names all are removed, also those of methods that are no longer installed.
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
    """Build the overlay in its folder; a failure leaves nothing half-built."""
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


def _write_stamp(
    environment: Environment, place: Path, main: MainEnvironment, seconds: float
) -> None:
    stamp = {
        "format_version": _FORMAT_VERSION,
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
    """Return the stamp of a finished build of this environment; None without a valid one."""
    try:
        stamp = json.loads((place / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(stamp, dict) or stamp.get("digest") != environment.digest:
        return None
    # Stamps of the first releases call it "form".
    version = stamp.get("format_version", stamp.get("form"))
    return stamp if version == _FORMAT_VERSION else None


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
    # Without following links, as `du` does: the interpreter is a link.
    total = 0
    for current, _, files in os.walk(place):
        for name in files:
            try:
                total += os.lstat(os.path.join(current, name)).st_size
            except FileNotFoundError:
                continue  # removed meanwhile by its builder
    return total


def _message(problem: OSError) -> str:
    if isinstance(problem, subprocess.SubprocessError):
        return str(problem)
    where = f": {problem.filename}" if problem.filename else ""
    return f"{problem.strerror or problem}{where}"


# One overlay --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class MainEnvironment:
    """The environment of this process, which overlays extend."""

    python: str
    """Version of the interpreter."""
    packages: tuple[Path, ...]
    """Its folders of packages."""
    versions: Mapping[str, str]
    """Versions of the packages that overlays share with it."""
    torch: str | None
    """File that `import torch` loads."""


@functools.cache
def main_environment() -> MainEnvironment:
    """Return the environment of this process."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    versions = {}
    for name in SHARED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # nothing to share
    torch = importlib.util.find_spec("torch")
    return MainEnvironment(
        python=platform.python_version(),
        packages=tuple(Path(path) for path in dict.fromkeys(folders) if path in sys.path),
        versions=versions,
        torch=None if torch is None else torch.origin,
    )


def make_overlay(
    environment: Environment,
    place: Path,
    main: MainEnvironment,
    lock: int,
    say: Callable[[str], None],
) -> None:
    """Create the virtual environment and install the requirements. `place` must not exist."""
    # Run by the overlay's interpreter, the main pip installs into the overlay: it needs no copy.
    without_pip = ["--without-pip"] if importlib.util.find_spec("pip") is not None else []
    say("creating the virtual environment")
    command = [sys.executable, "-P", "-m", "venv", *without_pip]
    _run(environment, [*command, str(place)], place.parent, lock)
    packages = _packages(place)
    lines = (f"import site; site.addsitedir({str(path)!a})\n" for path in main.packages)
    (packages / "_main_environment.pth").write_text("".join(lines), encoding="ascii")
    if not environment.requirements:
        return
    constraints = place / "constraints.txt"
    constraints.write_text(
        "".join(f"{name}=={version}\n" for name, version in main.versions.items()),
        encoding="utf-8",
    )
    say(f"installing {', '.join(environment.requirements)}")
    pip = [str(place / "bin" / "python"), "-P", "-m", "pip", "--no-input"]
    pip += ["--disable-pip-version-check", "install", "--progress-bar=off", "--no-warn-conflicts"]
    pip += [f"--constraint={constraints}", "--", *environment.requirements]

    def progress(line: str) -> None:
        if _PROGRESS.match(line.strip()):
            # The name of a local file is enough.
            text = re.sub(r"^Processing .*/", "Processing ", line.strip().removesuffix("..."))
            short = text if len(text) <= 90 else f"{text[:87]}..."
            say(f"  {short}")

    _run(environment, pip, place, lock, progress)
    read_newer_arrays(packages)
    moved = sorted({*SHARED} & {*installed(place)})
    if moved:
        raise EnvironmentUnavailable(
            environment.name,
            f"built: pip installed {', '.join(moved)} into it, which it must share with the main "
            "environment",
        )


def read_newer_arrays(packages: Path) -> None:
    """Let numpy 1.26 in an overlay read arrays that numpy 2 of the main environment has sent.

    numpy 1.26 has the module names of numpy 2 for that purpose, but for the one by which arrays
    without a copy are sent. The file is like those beside it.
    """
    folder = packages / "numpy" / "_core"
    missing = folder / "numeric.py"
    old = (packages / "numpy" / "core" / "numeric.py").is_file()
    if old and folder.is_dir() and not missing.exists():
        missing.write_text(
            "from numpy.core import numeric\n\n"
            "globals().update({name: getattr(numeric, name) for name in dir(numeric)})\n",
            encoding="ascii",
        )


def installed(place: Path) -> Mapping[str, str]:
    """Return the versions of the packages in the overlay itself."""
    distributions = metadata.distributions(path=[str(_packages(place))])
    return dict(sorted((_canonical(item.name), item.version) for item in distributions))


def required_versions(environment: Environment) -> Mapping[str, str]:
    """Return the versions, in this process, of the packages that an environment requires."""
    versions = {}
    for requirement in environment.requirements:
        match = _NAME.match(requirement)
        if match is None:
            continue  # a path or an address
        try:
            versions[_canonical(match[0])] = metadata.version(match[0])
        except metadata.PackageNotFoundError:
            continue
    return versions


def probe(
    python: Path,
    environment: Environment,
    main: MainEnvironment,
    *,
    thorough: bool,
    given: bool = False,
) -> str:
    """Return why an interpreter cannot be used for this environment; empty where it can.

    A given interpreter may have its own copy of torch, in the same version; an overlay may not.
    """
    if not python.exists():
        return "no such file" if not python.is_symlink() else "its Python was removed"
    question = json.dumps([environment.modules, SHARED, thorough])
    try:
        # -P: the current folder is not searched for modules.
        answered = subprocess.run(
            [str(python), "-P", "-c", _QUESTIONS, question],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS_TO_ANSWER,
            env=_variables(),
        )
    except subprocess.TimeoutExpired:
        return f"its interpreter did not respond within {_SECONDS_TO_ANSWER} s"
    except OSError as problem:
        return f"its interpreter does not run ({problem.strerror})"
    lines = answered.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
        versions, torch = answer["versions"], answer["torch"]
    except (IndexError, ValueError, KeyError, TypeError):
        return f"its interpreter does not run ({_meaning(answered.stderr.splitlines())})"
    if answer["python"].split(".")[:2] != main.python.split(".")[:2]:
        return f"it runs Python {answer['python']}, the main environment {main.python}"
    for name, version in main.versions.items():
        if versions.get(name) != version:
            has = versions.get(name, "none")
            return f"it has {name} {has}, the main environment {version}"
    if not given and torch != main.torch:
        return f"torch is loaded from {torch} instead of {main.torch}"
    return str(answer["problem"])


def _run(
    environment: Environment,
    command: Sequence[str],
    where: Path,
    lock: int,
    progress: Callable[[str], None] = lambda line: None,
) -> None:
    """Run a step of a build; its failure is an error of one line."""
    lines: list[str] = []
    # The child inherits the lock: if we are killed, it is held until the child stops writing.
    with subprocess.Popen(
        command,
        cwd=where,
        env=_variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock],
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                progress(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise EnvironmentUnavailable(
            environment.name, f"built: {_meaning(lines) or f'exit code {process.returncode}'}"
        )


def _meaning(lines: Sequence[str]) -> str:
    """Return the line of pip's output that states the error."""
    printed = [line.strip() for line in lines if line.strip()]
    unreachable = any("Retrying (" in line or "connection broken" in line for line in printed)
    errors = [
        line.partition(":")[2].strip()
        for line in printed
        # That line only refers to a web page; the conflict itself is in the line before.
        if line.lower().startswith("error:") and "ResolutionImpossible" not in line
    ]
    last = (errors or printed or [""])[-1]
    if unreachable and "No matching distribution" in last:
        return f"the package index cannot be reached ({last})"
    return last


def _variables() -> dict[str, str]:
    """Return our environment variables without those that add other packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def _packages(place: Path) -> Path:
    """Return the folder of packages of a virtual environment."""
    variables = {"base": str(place), "platbase": str(place)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
