"""The process from which fits are forked. No plugin is imported here, and no thread is started.

It is started anew, not forked, by a process that runs cells: that one has threads (of Ray, Arrow,
OpenMP), and a fork of such a process may hang on a lock that a lost thread held. Here the harness
and its libraries are loaded, data of the current datasets is kept, and each fit is a fork: it costs
milliseconds and shares memory until it writes. Libraries that a fit has imported are loaded here
afterwards, so that the next one need not, if they are on our own list and start no thread.

A forked process ends with this one, this one with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import json
import os
import random
import secrets
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from bench.data.dataset import Dataset
from bench.engine.fit import FitResult, fit_cell, fit_isolated, guarded, synthesize
from bench.engine.isolation import wire
from bench.engine.limits import THREAD_VARIABLES, captured, threads_capped
from bench.engine.procedure import Batch, Work, run_batch
from bench.errors import InvalidReleaseError
from bench.plugins import registry
from bench.plugins.release import ReleasedModel, TrainedInRounds
from bench.privacy.accounting import ComposedEvents, account_elsewhere
from bench.privacy.grid import Grid
from bench.privacy.noise import SeededNoise
from bench.results.records import Cell, Status

LIBRARIES = frozenset(
    {"absl", "attr", "cryptography", "diffprivlib", "dp_accounting", "interpret", "joblib", "jax",
     "jaxlib", "lifelines", "mbi", "mpmath", "networkx", "numba", "numpy", "opacus", "opendp",
     "pandas", "pyarrow", "scipy", "sklearn", "snsynth", "sympy", "threadpoolctl", "torch",
     "torchvision", "xgboost"}
)  # fmt: skip
"""What is loaded here once a fit has used it: libraries that change nothing when imported."""

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_TASKS = Path("/proc/self/task")
_BASE = ("bench.privacy.accounting", "bench.privacy.noise", "bench.environments.overlays")


@final
@dataclass(frozen=True)
class Setting:
    """In which surroundings a fit runs; the limits themselves are enforced by the watcher."""

    folder: str = ""
    """Where its output and temporary files go; empty for those of the server."""
    disk_mb: float = 4096.0
    threads: int = 1


@final
@dataclass(frozen=True)
class FitTask:
    """Fit one cell; or the same method for another purpose."""

    cell: Cell
    dataset: str | Dataset
    """The name of data that was sent before, or the data."""
    purpose: str = ""
    own_environment: bool = False
    """True in the environment of the method."""


@final
@dataclass(frozen=True)
class BatchTask:
    """Do items of a procedure, as they are asked for."""

    work: Work
    shared: bytes
    """Packed: it holds the method, whose module is imported where it is read."""


@final
@dataclass(frozen=True)
class Request:
    """Fork one process; its end of the channel comes with it."""

    number: int
    task: bytes
    """A pickled task, which only the forked process reads."""
    setting: Setting
    environment: Mapping[str, str]
    folder: str
    """Current folder of the process that asks."""


@final
@dataclass(frozen=True)
class Keep:
    """Keep data under this name, for fits that come."""

    name: str
    dataset: Dataset


@final
@dataclass(frozen=True)
class Drop:
    """Forget data."""

    name: str


@final
@dataclass(frozen=True)
class Load:
    """Import these modules, as far as they are of libraries."""

    modules: Sequence[str]


@final
@dataclass(frozen=True)
class Kill:
    """End a forked process."""

    number: int


# The server ---------------------------------------------------------------------------------------


def serve(number: int, ends_with_thread: bool) -> None:
    """Serve the process at the other end of this socket until it is closed."""
    if ends_with_thread:
        _end_with_parent(os.getppid())
    server = _Server(socket.socket(fileno=number))
    try:
        server.run()
    except (ConnectionError, EOFError):
        return  # the other end is gone
    finally:
        server.end()


@final
@dataclass
class _Server:
    control: socket.socket
    datasets: dict[str, Dataset] = field(default_factory=dict)
    children: dict[int, int] = field(default_factory=dict)
    """Numbers of requests, by process."""
    threads: int = 1_000_000
    """Those that there were when it began to serve: one, with the libraries that we know."""
    refused: set[str] = field(default_factory=set)
    """Modules that cannot be imported here, or are not wanted."""

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ended, noted = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(noted, False)
        signal.set_wakeup_fd(noted, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._load(_BASE)
        registry.method_names()
        _warm()
        self.threads = threads()
        self._settle()
        self._say({"ready": os.getpid()})
        while True:
            waiting: list[Any] = [self.control, ended]
            ready, _, _ = select.select(waiting, [], [])
            if ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(ended, 4096)
                self._reap()
            if self.control in ready and not self._answer():
                return

    def _answer(self) -> bool:
        received = wire.receive_request(self.control)
        if received is None:
            return False
        match received:
            case Request() as request, [channel]:
                self._fork(request, channel)
            case Keep(name, dataset), _:
                self.datasets[name] = dataset
                self._settle()
            case Drop(name), _:
                self.datasets.pop(name, None)
            case Load(modules), _:
                self._load(modules)
                self._settle()
            case Kill(number), _:
                for pid, known in self.children.items():
                    if known == number:
                        os.kill(pid, signal.SIGKILL)
        return True

    def _fork(self, request: Request, channel: int) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid:
            os.close(channel)
            self.children[pid] = request.number
            return
        end = os._exit
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _end_with_parent(server)
            self.control.close()
            _serve_fit(socket.socket(fileno=channel), request, self.datasets)
        except BaseException:
            # The connection is closed, or the plugin has replaced what is needed to use it.
            with contextlib.suppress(BaseException):
                import traceback

                # The last error alone: of what the method printed before, the last lines are kept.
                traceback.print_exc(chain=False)
                sys.stderr.flush()
            end(1)
        # What was printed and not written yet; the plugin may have closed it.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        end(0)

    def _reap(self) -> None:
        for pid in [*self.children]:
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                number = self.children.pop(pid)
                self._say({"ended": number, "status": status, "peak": used.ru_maxrss})

    def _say(self, message: Mapping[str, int | str]) -> None:
        self.control.sendall(json.dumps(message).encode("ascii") + b"\n")

    def _load(self, modules: Iterable[str]) -> None:
        for name in modules:
            known = name in _BASE or name.partition(".")[0] in LIBRARIES
            if not known or name in self.refused or name in sys.modules:
                continue
            try:
                importlib.import_module(name)
            except Exception:
                # One that is imported in another way, or only together with others.
                self.refused.add(name)
            if threads() > self.threads:
                # Forks lose threads. The other end starts another server, without this module.
                self._say({"threads": name})
                return

    def _settle(self) -> None:
        """Leave what is here out of the collector: it would write to, and so copy, shared pages."""
        gc.collect()
        gc.freeze()

    def end(self) -> None:
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def threads() -> int:
    """Number of threads of this process, as far as the system says."""
    try:
        return len(os.listdir(_TASKS))
    except OSError:
        return 1


def _end_with_parent(parent: int) -> None:
    """Have the system end this process when the one that started it ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _warm() -> None:
    """Load the compiled loops of the kernel, which every fit would read from disk otherwise."""
    noise = SeededNoise(np.random.default_rng(0))
    noise.normal(1.0, 2)
    noise.laplace(1.0, 2)
    noise.poisson_sample(2, 0.5)
    for kind in (np.float32, np.float64):
        Grid.of(1.0, 1.0, 1).sum(np.zeros((1, 1), dtype=kind), 1.0)


# A forked process ---------------------------------------------------------------------------------


def _serve_fit(channel: socket.socket, request: Request, datasets: Mapping[str, Dataset]) -> None:
    """Do the task, send its result, and answer for a released model until it is let go."""
    gc.enable()
    os.environ.clear()
    os.environ.update(request.environment)
    with contextlib.suppress(OSError):
        os.chdir(request.folder)
    _draw_fresh_seeds()
    account_elsewhere(_Asking(channel))
    loaded = len(sys.modules)
    setting = request.setting
    with contextlib.ExitStack() as stack:
        if setting.folder:
            stack.enter_context(captured(Path(setting.folder), setting.disk_mb))
        if setting.threads == 1:
            _keep_one_thread()
        else:
            stack.enter_context(threads_capped(setting.threads))
        model: ReleasedModel | None = None
        try:
            match wire.unpacked(request.task):
                case FitTask() as task:
                    fitted = _fit(task, datasets)
                    model = None if fitted.release is None else fitted.release.model
                    answer = guarded(lambda: wire.of_result(fitted))
                    if isinstance(answer, FitResult):
                        answer, model = wire.of_result(answer), None
                case BatchTask() as task:
                    _do_batches(task, channel)
                    return
        except KeyboardInterrupt as problem:
            # Of the plugin: a user's Ctrl-C does not reach this process.
            answer = wire.of_result(FitResult.failed(problem))
        try:
            wire.send(channel, {"result": answer, "modules": _new_libraries(loaded)})
        except (wire.WireError, TypeError, ValueError) as problem:
            # Found before anything was sent.
            wire.send(channel, {"result": wire.of_result(FitResult.failed(problem)), "modules": []})
            return
        if model is not None:
            _answer_for(model, channel)
        # Without leaving the contexts: nothing here outlives the process.
        stack.pop_all()


def _fit(task: FitTask, datasets: Mapping[str, Dataset]) -> FitResult:
    dataset = datasets[task.dataset] if isinstance(task.dataset, str) else task.dataset
    if task.purpose:
        release = guarded(lambda: synthesize(task.cell, dataset, task.purpose))
        if isinstance(release, FitResult):
            return release
        return FitResult(Status.OK, release)
    return (fit_isolated if task.own_environment else fit_cell)(task.cell, dataset)


def _do_batches(task: BatchTask, channel: socket.socket) -> None:
    """Do batches of one procedure until the other end is closed."""
    fill = wire.fill_from(channel)
    shared: Any = None
    loaded = len(sys.modules)
    while True:
        try:
            items = wire.unpacked(wire.receive(fill)["items"].tobytes())
        except EOFError:
            return
        try:
            shared = shared or wire.unpacked(task.shared)
            done = run_batch(task.work, shared, items)
        except BaseException as problem:
            done = FitResult.failed(problem)
        answer = (
            {"results": done.results, "seconds": done.seconds}
            if isinstance(done, Batch)
            else wire.of_result(done)
        )
        wire.send(channel, {"result": answer, "modules": _new_libraries(loaded)})
        loaded = len(sys.modules)


def _answer_for(model: ReleasedModel, channel: socket.socket) -> None:
    """Answer questions to a released model until the other end is closed."""
    fill = wire.fill_from(channel)
    while True:
        try:
            question = wire.receive(fill)
        except EOFError:
            return
        answer = guarded(functools.partial(_predicted, model, question))
        if isinstance(answer, FitResult):
            wire.send(channel, {"failed": wire.of_result(answer)})
        else:
            wire.send(channel, {"answer": answer})


def _predicted(model: ReleasedModel, question: wire.Plain) -> np.ndarray[Any, Any]:
    if question["round"] is not None and isinstance(model, TrainedInRounds):
        model = model.after(question["round"])
    answer = np.asarray(model.predict(question["values"]))
    if answer.dtype.kind not in "fiub" or answer.dtype.itemsize > 8:
        raise InvalidReleaseError(
            f"the released model answers with values of type {answer.dtype}; expected numbers of "
            "up to 64 bits"
        )
    return answer


@final
class _Asking:
    """Asks the process that runs cells for epsilons."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._process = os.getpid()
        self._lock = threading.Lock()

    def __call__(
        self, by: str, composition: ComposedEvents, delta: float, order: float | None
    ) -> float | None:
        """Return the answer; None in a process that the method has forked, which must not ask."""
        if os.getpid() != self._process:
            return None
        try:
            question = wire.of_composition(by, composition, delta, order)
        except ValueError:
            return None  # an event that cannot be written
        with self._lock:
            wire.send(self._channel, question)
            answer: float | None = wire.receive(wire.fill_from(self._channel))["known"]
        return answer


def _new_libraries(loaded: int) -> list[str]:
    """Return the modules of libraries that were imported after so many others."""
    # Backwards: to look at a name is to write to its page, which is shared until then.
    new = [*itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - loaded))]
    return [name for name in reversed(new) if name.partition(".")[0] in LIBRARIES]


def _keep_one_thread() -> None:
    """Do as `threads_capped(1)` does: all that is loaded here was loaded with one thread.

    Looking for libraries takes 20 ms; asking numba starts its threads, as many as there are CPUs.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    numba: Any = sys.modules.get("numba")
    if numba is not None:
        numba.config.NUMBA_NUM_THREADS = 1
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _draw_fresh_seeds() -> None:
    """Give the generators that libraries share fresh seeds.

    All forks start with the same ones: a library that draws noise from them, without being seeded,
    would draw the same noise for every release.
    """
    random.seed(secrets.token_bytes(32))
    np.random.seed(np.frombuffer(secrets.token_bytes(32), dtype=np.uint32))  # noqa: NPY002
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.seed()
