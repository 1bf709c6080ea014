"""Runs tests against mutants, each in a process forked from one that has collected all tests.

Two ways in. A mutant inside an ordinary function takes effect by exchanging the bytecode of the
function object, which every importer already holds: such a process costs little more than its
tests. A mutant that acts when its module is imported (a constant, a default, a class body, a
function called by an import), or inside a function that numba compiles, needs modules that were
imported afresh: there the process drops this project's modules, imports them again with the
mutated one in place, collects the tests that it needs and runs them. What numba keeps on disk is
keyed by the source file, so that such a process gets an empty cache. A mutant inside a function
that numba compiles is tried uncompiled first, for some seconds: a test that fails then has noticed
it, anything else is decided with the compiled one.

Which tests can see a mutant follows from the lines that each test executed once, unmutated.
Processes that a test starts by a command line run the code on disk and notice no mutant.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from operators import Mutant, Source

OURS = ("bench", "tests")
MEMORY = 4 * 2**30
"""Bytes of data that a mutant may allocate."""
_OPTIONS = ("-q", "--tb=native", "-p", "no:cacheprovider")
_COMPILER = "privacy/compiled.py"
"""The module with the decorator `compiled`."""
NOT_PRELOADED = ("ray", "mlflow")
"""Libraries that start threads when they are imported, which a fork would lose."""


@dataclass
class Recorded:
    """What one test executed, unmutated."""

    seconds: float
    lines: dict[str, list[int]]
    """Lines of the modules under test, by the module's path."""


@dataclass
class Verdict:
    """What became of one mutant."""

    status: str
    """killed, timeout, survived or uncovered."""
    by: str = ""
    """The test that failed."""
    seconds: float = 0.0


# Tracing ------------------------------------------------------------------------------------------


class _Tracer:
    """Records executed lines of some files."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._wanted = dict.fromkeys(paths)
        self.lines: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if path not in self._wanted:
            return None
        lines = self.lines.setdefault(path, set())

        def local(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return local

        # A function counts by its body: its first line is executed where it is defined.
        return local

    def start(self) -> None:
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


# Import of a mutated module -----------------------------------------------------------------------


class _MutatedLoader(importlib.abc.Loader):
    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


class _MutatedFinder(importlib.abc.MetaPathFinder):
    """Finds one module where the others find it, but with other bytecode."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name, self._code = name, code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                spec.loader = _MutatedLoader(self._code)
                return spec
        return None


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS


# The pytest plugin --------------------------------------------------------------------------------


@dataclass
class Session:
    """Collects tests once, then asks `work` what to do with them."""

    root: Path
    sources: Sequence[Source]
    cache: Path
    """Where the executed lines of tests are kept between runs."""
    work: Callable[[Runner], None]
    failure: BaseException | None = None
    entered: set[tuple[str, str]] = field(default_factory=set)
    """(path, name) of functions of the modules under test that an import called."""

    def run(self, arguments: Sequence[str]) -> None:
        paths = {str(source.path) for source in self.sources}

        def imports(frame: FrameType, event: str, argument: object) -> Any:
            if event == "call" and frame.f_code.co_filename in paths:
                self.entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

        sys.settrace(imports)
        status = pytest.main([*arguments, *_OPTIONS], [self])
        if self.failure is not None:
            raise self.failure
        if status != 0:
            raise SystemExit(f"pytest could not collect the tests: exit code {int(status)}")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        try:
            self.work(Runner(self, session))
        except BaseException as problem:
            self.failure = problem
        return True


class Runner:
    """Evaluates mutants with the tests of one session."""

    def __init__(self, owner: Session, session: pytest.Session) -> None:
        self._root, self._sources = owner.root, owner.sources
        self._entered, self._config = owner.entered, session.config
        self._items = {item.nodeid: item for item in session.items}
        self._scratch = Path(tempfile.mkdtemp(prefix="mutation-"))
        self._killers: dict[tuple[str, str], list[str]] = {}
        self._uncompiled_passes: dict[str, bool] = {}
        self.recorded = self._record(owner.cache)
        self._import_what_tests_import(owner.cache)
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        paths = {str(source.path) for source in self._sources}
        for one in gc.get_objects():
            # The type itself: `isinstance` would wake proxies of other libraries.
            if type(one) is FunctionType and one.__code__.co_filename in paths:
                code = one.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self._functions.setdefault(key, []).append(one)
        self._bodies = {source.module: _body_lines(source.compile()) for source in self._sources}
        gc.freeze()

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that can see a mutant, those likely to kill it first, and cheap ones."""
        path = mutant.module
        compiled = self._is_compiled(mutant)
        chosen = []
        for test, recorded in self.recorded.items():
            lines = recorded.lines.get(path, [])
            if mutant.function and not compiled and not self._at_import(mutant):
                # A statement of several lines is executed where it starts, or on one of them.
                seen = mutant.line in lines or (
                    mutant.line not in self._bodies[path]
                    and any(line in lines for line in self._near(mutant))
                )
            else:
                seen = any(line in self._bodies[path] for line in lines)
                # Compiled lines leave no trace but that of the wrapper that starts them.
                seen = seen or (
                    bool(_compiled_functions(mutant.source))
                    and any(name.endswith(_COMPILER) for name in recorded.lines)
                )
            if seen:
                chosen.append(test)
        killers = self._killers.get((mutant.module, mutant.function), [])
        rank = {name: number for number, name in enumerate(reversed(killers))}

        def order(name: str) -> tuple[int, bool, int, str, float]:
            seconds, file = self.recorded[name].seconds, name.partition("::")[0]
            size = math.floor(2.0 * math.log10(max(seconds, 1e-3)))
            far = Path(mutant.module).stem not in Path(file).stem
            return (rank.get(name, len(rank)), far, size, file, seconds)

        return sorted(chosen, key=order)

    def cost(self, mutant: Mutant) -> int:
        """Return a rank: quick ones first, so that a run that is stopped has seen most."""
        return 2 * self._touches_compiled(mutant) + 1 if self._is_cold(mutant) else 0

    def evaluate(self, mutant: Mutant, quick: float = math.inf) -> Verdict:
        """Run the tests that can see a mutant until one fails; those of at most `quick` seconds."""
        names = [name for name in self.tests_of(mutant) if self.recorded[name].seconds <= quick]
        if not names:
            return Verdict("uncovered")
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        seconds = sum(self.recorded[name].seconds for name in names)
        started = time.monotonic()
        try:
            status, by = "again", ""
            if self._is_compiled(mutant):
                status, by = self._fork(
                    lambda: self._uncompiled(mutant, names, folder), folder, 0.0
                )
                status = "killed" if status == "killed" and self._passes(by) else "again"
            elif not self._is_cold(mutant):
                status, by = self._fork(lambda: self._warm(mutant, names, folder), folder, seconds)
            if status == "again":
                shutil.rmtree(folder / "temporary", ignore_errors=True)
                status, by = self._fork(lambda: self._cold(mutant, names, folder), folder, seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if by in self.recorded:
            killers = self._killers.setdefault((mutant.module, mutant.function), [])
            if by in killers:
                killers.remove(by)
            killers.append(by)
        return Verdict(status, by, round(time.monotonic() - started, 2))

    # Processes ------------------------------------------------------------------------------------

    def _fork(
        self, child: Callable[[], str | None], folder: Path, seconds: float
    ) -> tuple[str, str]:
        """Run `child` in a process of its own: it returns the test that failed, or None."""
        answer = folder / "answer"
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                os.setsid()
                limit = int(8 + 4 * seconds)
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                by = child()
                answer.write_text("" if by is None else by, encoding="utf-8")
                code = 0 if by is None else 1
            except _AgainError:
                code = 77
            except BaseException:
                answer.write_text(traceback.format_exc(), encoding="utf-8")
            finally:
                os._exit(code)
        status = self._wait(pid, 60.0 + 60.0 * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what the tests left running
        if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OVER_TIME):
            return "timeout", ""
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return "survived", ""
        if code == 77:
            return "again", ""
        if code == 3:
            raise RuntimeError(f"a worker failed:\n{answer.read_text(encoding='utf-8')}")
        by = answer.read_text(encoding="utf-8") if answer.exists() else ""
        return "killed", by or "(the process ended)"

    def _wait(self, pid: int, limit: float) -> int | None:
        until = time.monotonic() + limit
        pause = 0.002
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None

    def _warm(self, mutant: Mutant, names: Sequence[str], folder: Path) -> str | None:
        code = _find(mutant.compile(), mutant.function, mutant.function_line)
        path = str(mutant.source.path)
        functions = self._functions.get((path, mutant.function, mutant.function_line), [])
        if code is None or not functions:
            raise _AgainError
        for function in functions:
            try:
                function.__code__ = code
            except ValueError:  # another closure
                raise _AgainError from None
        return self._run([self._items[name] for name in names], folder)

    def _uncompiled(self, mutant: Mutant, names: Sequence[str], folder: Path) -> str | None:
        _compile_nothing()
        return self._warm(mutant, names, folder)

    def _passes(self, name: str) -> bool:
        """Whether a test passes with uncompiled functions, unmutated."""
        if name not in self._uncompiled_passes:
            folder = Path(tempfile.mkdtemp(dir=self._scratch))

            def child() -> str | None:
                _compile_nothing()
                return self._run([self._items[name]], folder)

            self._uncompiled_passes[name] = self._fork(child, folder, 60.0)[0] == "survived"
            shutil.rmtree(folder, ignore_errors=True)
        return self._uncompiled_passes[name]

    def _run(self, items: Sequence[pytest.Item], folder: Path) -> str | None:
        """Run items in this process until one fails, and return its name."""
        watcher = self._quiet(folder)
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if watcher.failed:
                return item.nodeid
        return None

    def _quiet(self, folder: Path) -> _Watcher:
        manager = self._config.pluginmanager
        reporter = manager.getplugin("terminalreporter")
        if reporter is not None:
            manager.unregister(reporter)
        watcher = _Watcher()
        manager.register(watcher)
        factory: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        base = folder / "temporary"
        base.mkdir(mode=0o700)
        factory._basetemp = base.resolve()
        return watcher

    def _cold(self, mutant: Mutant, names: Sequence[str], folder: Path) -> str | None:
        manager: Any = self._config.pluginmanager.getplugin("capturemanager")
        if manager is not None:
            manager.stop_global_capturing()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        name = ".".join(Path(mutant.module).with_suffix("").parts)
        sys.meta_path.insert(0, _MutatedFinder(name.removesuffix(".__init__"), mutant.compile()))
        if self._touches_compiled(mutant):
            import numba

            numba.config.CACHE_DIR = str(folder / "numba")
        chosen, markers = _Chosen(names), self._config.option.markexpr
        files = sorted({str(self._root / one.partition("::")[0]) for one in names})
        status = pytest.main(
            [*_OPTIONS, "-x", "-m", markers, "--basetemp", str(folder / "temporary"), *files],
            [chosen],
        )
        if status == pytest.ExitCode.OK:
            return None
        return chosen.failed or "(collection of the tests)"

    # Which way in ---------------------------------------------------------------------------------

    def _at_import(self, mutant: Mutant) -> bool:
        path = str(mutant.source.path)
        return any(
            where == path and (name == mutant.function or name.startswith(f"{mutant.function}."))
            for where, name in self._entered
        )

    def _is_cold(self, mutant: Mutant) -> bool:
        return not mutant.function or self._at_import(mutant)

    def _is_compiled(self, mutant: Mutant) -> bool:
        return mutant.function in _compiled_functions(mutant.source)

    def _touches_compiled(self, mutant: Mutant) -> bool:
        return bool(_compiled_functions(mutant.source)) or mutant.module.endswith(_COMPILER)

    def _near(self, mutant: Mutant) -> Iterator[int]:
        """Yield the last executable line before the mutant's, and the next one."""
        lines = sorted(self._bodies[mutant.module])
        before = [line for line in lines if line < mutant.line]
        after = [line for line in lines if line > mutant.line]
        yield from before[-1:]
        yield from after[:1]

    # Lines of tests -------------------------------------------------------------------------------

    def _record(self, cache: Path) -> dict[str, Recorded]:
        """Return what every test executes, from the cache where neither it nor the code changed."""
        shared = hashlib.sha256()
        for source in self._sources:
            shared.update(source.path.read_bytes())
        for path in sorted((self._root / "tests").rglob("*.py")):
            if path.parent.name == "support" or path.name == "conftest.py":
                shared.update(path.read_bytes())
        files: dict[str, list[pytest.Item]] = {}
        for item in self._items.values():
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        kept: dict[str, Any] = {}
        if cache.exists():
            kept = json.loads(cache.read_text(encoding="utf-8"))["files"]
        known: dict[str, Any] = {}
        for name, items in files.items():
            digest = shared.copy()
            digest.update((self._root / name).read_bytes())
            key = digest.hexdigest()[:16]
            if kept.get(name, {}).get("key") == key:
                known[name] = kept[name]
                continue
            print(f"  recording the lines that {name} executes", file=sys.stderr, flush=True)
            folder = Path(tempfile.mkdtemp(dir=self._scratch))
            status, text = self._fork(
                lambda items=items, folder=folder: self._trace(items, folder), folder, 1000.0
            )
            if status != "killed" or not text.startswith("{"):
                raise RuntimeError(f"{name}: tests could not be recorded: {status} {text}")
            known[name] = {"key": key, **json.loads(text)}
            shutil.rmtree(folder, ignore_errors=True)
            self._save(cache, {**kept, **known})
        recorded = {}
        for entry in known.values():
            for failed in entry["failed"]:
                print(f"  left out, fails unmutated: {failed}", file=sys.stderr, flush=True)
            for test, (seconds, lines) in entry["tests"].items():
                recorded[test] = Recorded(seconds, lines)
        self._modules = sorted({one for entry in known.values() for one in entry["modules"]})
        return recorded

    def _save(self, cache: Path, files: dict[str, Any]) -> None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(".part")
        part.write_text(json.dumps({"files": files}), encoding="utf-8")
        part.replace(cache)

    def _trace(self, items: Sequence[pytest.Item], folder: Path) -> str:
        watcher = self._quiet(folder)
        names = {str(source.path): source.module for source in self._sources}
        tests: dict[str, Any] = {}
        failed = []
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            tracer = _Tracer(list(names))
            watcher.failed = False
            started = time.process_time()
            tracer.start()
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            finally:
                tracer.stop()
            seconds = round(time.process_time() - started, 4)
            if watcher.failed:
                failed.append(item.nodeid)
            elif not watcher.skipped:
                lines = {names[path]: sorted(found) for path, found in tracer.lines.items()}
                tests[item.nodeid] = (seconds, lines)
            watcher.skipped = False
        modules = [
            name
            for name in sys.modules
            if not _is_ours(name) and name.partition(".")[0] not in NOT_PRELOADED
        ]
        return json.dumps({"tests": tests, "failed": failed, "modules": modules})

    def _import_what_tests_import(self, cache: Path) -> None:
        """Import other libraries that tests import while they run, so that forks have them."""
        for name in self._modules:
            if name not in sys.modules and not name.startswith(("_pytest", "pytest")):
                # Recorded names include modules that a test made up or removed again.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


_OVER_TIME = (signal.SIGXCPU, signal.SIGKILL)


class _AgainError(Exception):
    """The bytecode cannot be exchanged: import the module afresh."""


class _Watcher:
    failed = False
    skipped = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        self.skipped = self.skipped or report.skipped


class _Chosen:
    """Keeps some tests, in a given order, and notes the first that fails."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        items[:] = [known[name] for name in self._names if name in known]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _compile_nothing() -> None:
    import numba

    numba.config.DISABLE_JIT = True


def _find(code: CodeType, qualname: str, line: int) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualname and constant.co_firstlineno == line:
                return constant
            if qualname.startswith(f"{constant.co_qualname}."):
                found = _find(constant, qualname, line)
                if found is not None:
                    return found
    return None


def _body_lines(code: CodeType) -> set[int]:
    """Return the lines of all function bodies: those of modules and classes run at import."""
    lines: set[int] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines |= _body_lines(constant)
            if constant.co_flags & 0x2:  # new locals: a function
                own = {line for _, _, line in constant.co_lines() if line is not None}
                lines |= own - {constant.co_firstlineno}
    return lines


def _compiled_functions(source: Source) -> set[str]:
    """Return the names of functions that numba compiles, which no change of bytecode reaches."""
    import ast

    return {
        node.name
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(one, ast.Name) and one.id == "compiled" for one in node.decorator_list)
    }
