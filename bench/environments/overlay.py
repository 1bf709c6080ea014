"""One overlay: a virtual environment above the main one. How it is made, and how it is asked.

A path configuration file in the overlay runs `site.addsitedir` on the main packages. A plain path
there would extend `sys.path` too, but skip the configuration files found in it, and with them every
editable install. The overlay's own packages come first, so that they win.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import re
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import final

from bench.errors import EnvironmentUnavailable
from bench.plugins.method import Environment

SHARED = ("torch", "ray", "dp-accounting")
"""Never installed into an overlay: torch for its size, the others because they speak across."""

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


@final
@dataclass(frozen=True)
class Main:
    """The main environment: what overlays lie upon."""

    python: str
    """Version of the interpreter."""
    packages: tuple[Path, ...]
    """Its folders of packages."""
    versions: Mapping[str, str]
    """Of the packages that overlays share with it."""
    torch: str | None
    """The file that `import torch` loads."""


@functools.cache
def main_environment() -> Main:
    """The environment of this process."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    versions = {}
    for name in SHARED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # nothing to share
    torch = importlib.util.find_spec("torch")
    return Main(
        python=platform.python_version(),
        packages=tuple(Path(path) for path in dict.fromkeys(folders) if path in sys.path),
        versions=versions,
        torch=None if torch is None else torch.origin,
    )


def make_overlay(
    environment: Environment, place: Path, main: Main, lock: int, say: Callable[[str], None]
) -> None:
    """Create the virtual environment and install the requirements. `place` must not exist."""
    # Seen from the overlay the main pip installs into the overlay: no copy of its own is needed.
    own_pip = importlib.util.find_spec("pip") is None
    say("creating the virtual environment")
    command = [sys.executable, "-P", "-m", "venv", *([] if own_pip else ["--without-pip"])]
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
            # Of a local file the name is enough.
            text = re.sub(r"^Processing .*/", "Processing ", line.strip().removesuffix("..."))
            short = text if len(text) <= 90 else f"{text[:87]}..."
            say(f"  {short}")

    _run(environment, pip, place, lock, progress)
    moved = sorted({*SHARED} & {*installed(place)})
    if moved:
        raise EnvironmentUnavailable(
            environment.name,
            f"built: pip put {', '.join(moved)} into it, which it must share with the main one",
        )


def installed(place: Path) -> Mapping[str, str]:
    """Versions of the packages in the overlay itself."""
    found = metadata.distributions(path=[str(_packages(place))])
    return dict(sorted((_canonical(item.name), item.version) for item in found))


def required_versions(environment: Environment) -> Mapping[str, str]:
    """Versions, in this process, of what an environment requires."""
    found = {}
    for requirement in environment.requirements:
        match = _NAME.match(requirement)
        if match is None:
            continue  # a path or an address
        try:
            found[_canonical(match[0])] = metadata.version(match[0])
        except metadata.PackageNotFoundError:
            continue
    return found


def probe(
    python: Path, environment: Environment, main: Main, *, thorough: bool, given: bool = False
) -> str:
    """Why an interpreter cannot be used for this environment; empty where it can.

    A given one may have a copy of torch, if it is the same version; an overlay may not.
    """
    if not python.exists():
        return "no such file" if not python.is_symlink() else "its Python was removed"
    question = json.dumps([environment.modules, SHARED, thorough])
    try:
        # -P: the folder we happen to be in is not searched for modules.
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
        return f"its interpreter gave no answer for {_SECONDS_TO_ANSWER} s"
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
    """Run a step of a build; its failure in one line."""
    lines: list[str] = []
    # The lock goes along: should we be killed, it stays held until this child has stopped writing.
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
    """The line of pip's output that says what went wrong."""
    said = [line.strip() for line in lines if line.strip()]
    unreachable = any("Retrying (" in line or "connection broken" in line for line in said)
    errors = [
        line.partition(":")[2].strip()
        for line in said
        # It only names a page; the conflict itself stands before it.
        if line.lower().startswith("error:") and "ResolutionImpossible" not in line
    ]
    last = (errors or said or [""])[-1]
    if unreachable and "No matching distribution" in last:
        return f"the package index cannot be reached ({last})"
    return last


def _variables() -> dict[str, str]:
    """Our variables but those that would let other packages in."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def _packages(place: Path) -> Path:
    """The folder of packages of a virtual environment."""
    variables = {"base": str(place), "platbase": str(place)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
