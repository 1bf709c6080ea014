"""Fits in processes of their own: starts the server, asks it for forks, reads what they return.

One server belongs to each process that runs cells. Every fit is one forked process, every refit of
a metric another one, and so is every batch of an audit's trials (not every trial: they are of one
method and one cell). A released model is not sent: the process that made it stays and answers
questions until the cell has ended; the scoring process sees predictions, arrays of numbers.

What a forked process sends is plain data (`wire`), checked again here. A process that ends, crashes
or sends something else costs its own cell, which is told why.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench.data.dataset import Dataset
from bench.data.encoder import Floats
from bench.engine.fit import FitResult, for_fitting
from bench.engine.isolation import wire
from bench.engine.isolation.server import (
    BatchTask,
    Drop,
    FitTask,
    Keep,
    Kill,
    Load,
    Request,
    Setting,
)
from bench.engine.procedure import Batch, Work
from bench.errors import BenchError, FitFailedError, InvalidReleaseError, NotApplicable
from bench.plugins.release import Detector, Release, ReleasedModel, TrainedInRounds
from bench.privacy.accounting import Budget
from bench.results.records import Cell, Status

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from bench.engine.isolation.server import serve; "
    "serve(int(sys.argv[1]), sys.argv[3] == 'yes')"
)
_DATASETS = 2
"""Datasets that a server keeps: a grid is run dataset by dataset, or nearly so."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""For libraries that start a thread when they are loaded: the allocator in pyarrow."""
_START_SECONDS = 600.0
_END_SECONDS = 10.0
_MODULES = 20_000
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


_SERVER_LOST = "the process that starts fits was killed, by the method or from outside; run again"


@final
class _Lost(Exception):
    """The process of a fit is gone, or does not speak; the text is told."""


@final
class FitServer:
    """The server of this process."""

    refused: ClassVar[set[str]] = set()
    """Modules that start threads when they are imported: no server of this process loads them."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # A library with threads of its own would have them before the first fork.
        environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **_NO_THREADS}
        environment.setdefault("NUMBA_NUM_THREADS", str(os.cpu_count() or 1))
        main = threading.current_thread() is threading.main_thread()
        arguments = [str(theirs.fileno()), json.dumps(sys.path), "yes" if main else "no"]
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", _START, *arguments],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=environment,
                )
            except OSError as problem:
                raise _not_started(problem) from None
        self._owner = os.getpid()
        self._control = ours
        self._said = b""
        self._ready = self._lost = self._threads = False
        self._open: set[int] = set()
        self._ended: dict[int, int] = {}
        """How forked processes ended that are still of interest."""
        self._numbers = itertools.count()
        self._kept: OrderedDict[str, None] = OrderedDict()
        self._loaded: set[str] = set()
        ours.settimeout(_START_SECONDS)
        try:
            while not self._ready:
                self._listen()
        except (OSError, _Lost) as problem:
            self.close()
            raise _not_started(problem) from None
        ours.settimeout(None)

    @property
    def usable(self) -> bool:
        """False once it is gone or has threads, and in a fork of the process that started it."""
        gone = self._lost or self._threads
        return self._owner == os.getpid() and not gone and self.process.poll() is None

    def close(self) -> None:
        """End the server with all that it has forked."""
        self._lost = True
        self._control.close()
        if self._owner != os.getpid():
            return
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def keep(self, name: str, dataset: Callable[[], Dataset]) -> None:
        """Have the server keep this data, unless it does."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return
        self._ask(Keep(name, dataset()))
        self._kept[name] = None
        while len(self._kept) > _DATASETS:
            old, _ = self._kept.popitem(last=False)
            self._ask(Drop(old))

    def fork(self, task: object, setting: Setting) -> Child:
        """Start a process for this task."""
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        content = wire.packed(task)
        request = Request(number, content, setting, dict(os.environ), os.getcwd())
        with theirs:
            try:
                self._ask(request, theirs)
            except _Lost:
                ours.close()
                raise
        self._open.add(number)
        return Child(self, number, ours)

    def forget(self, number: int) -> None:
        """End a forked process, whatever it does; how it ends is of no interest."""
        self._open.discard(number)
        if self._ended.pop(number, None) is None:
            self.kill(number)

    def load(self, modules: Sequence[str]) -> None:
        """Have the server import libraries that a fit has used."""
        new = [name for name in modules if name not in self._loaded and name not in self.refused]
        if new:
            self._loaded.update(new)
            self._ask(Load(new))

    def kill(self, number: int) -> None:
        """End a forked process."""
        self._ask(Kill(number))

    def wait(self, number: int, channel: socket.socket) -> None:
        """Wait until a forked process has said something; raise where it has ended instead."""
        while True:
            gone = number in self._ended
            ready, _, _ = select.select([channel, self._control], [], [], 0 if gone else None)
            if channel in ready:
                return
            if gone:
                raise _Lost(_ending(self._ended[number]))
            self._listen()

    def ending(self, number: int) -> str:
        """Wait for the end of a forked process; return how it ended, in words."""
        while number not in self._ended:
            if number not in self._open:
                return "its process has ended with its cell"
            self._listen()
        return _ending(self._ended[number])

    def _ask(self, request: object, channel: socket.socket | None = None) -> None:
        try:
            descriptors = [] if channel is None else [channel.fileno()]
            wire.send_request(self._control, request, descriptors)
        except OSError:
            self._lost = True
            raise _Lost(_SERVER_LOST) from None

    def _listen(self) -> None:
        """Take note of what the server says."""
        try:
            said = self._control.recv(4096)
        except ConnectionError:  # it was killed with requests that it had not read
            said = b""
        if not said:
            self._lost = True
            raise _Lost(_SERVER_LOST)
        *lines, self._said = (self._said + said).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._ready |= "ready" in message
            if message.get("ended") in self._open:
                self._ended[message["ended"]] = message["status"]
            if "threads" in message:
                # What runs is finished with it; the next cell gets another server.
                self._threads = True
                self.refused.add(message["threads"])


def _not_started(problem: Exception) -> BenchError:
    return BenchError(
        f"the process that starts fits did not start ({type(problem).__name__}); the machine may "
        "have too little memory left, or the environment is broken"
    )


def _ending(status: int) -> str:
    """How a process ended that sent no result."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in _CRASHES:
            return f"the cell crashed its process: {signal.strsignal(number)}"
        if number == signal.SIGKILL:
            return (
                "the process of its fit was killed, or closed its connection: by the method, from "
                "outside, or by the system for lack of memory"
            )
        return f"the process of its fit was ended by signal {number} ({signal.strsignal(number)})"
    return f"the cell ended its process: os._exit({os.waitstatus_to_exitcode(status)})"


@final
class Child:
    """A forked process."""

    def __init__(self, server: FitServer, number: int, channel: socket.socket) -> None:
        self._server = server
        self._number = number
        self._channel = channel

    def receive(self) -> wire.Plain:
        """Return what the process sends next; raise `_Lost` where it has ended instead.

        Epsilons that it asks for on the way are computed here, and remembered for the next fit.
        """

        def fill(view: memoryview) -> None:
            while view:
                self._server.wait(self._number, self._channel)
                try:
                    count = self._channel.recv_into(view)
                except ConnectionError:
                    count = 0
                if not count:
                    # It has ended, or closed what it should not have.
                    self._server.kill(self._number)
                    raise _Lost(self._server.ending(self._number))
                view = view[count:]

        while True:
            message = wire.receive(fill)
            if not isinstance(message, dict):
                raise wire.WireError("a message is no dictionary")
            if "epsilon" not in message:
                return message
            self._send({"known": wire.answered(message)})

    def ask(self, question: wire.Plain) -> wire.Plain:
        """Send a question and return the answer."""
        self._send(question)
        return self.receive()

    def _send(self, value: wire.Plain) -> None:
        try:
            wire.send(self._channel, value)
        except OSError:
            self._server.kill(self._number)
            raise _Lost(self._server.ending(self._number)) from None

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        with contextlib.suppress(_Lost):
            self._server.forget(self._number)


# What runs cells uses -----------------------------------------------------------------------------


@final
class IsolatedFits:
    """Runs every fit in a process of its own: a `Fits`, for the time of one cell."""

    def __init__(
        self, server: FitServer, setting: Setting, data: str = "", *, own_environment: bool = False
    ) -> None:
        """Prepare for one cell. `data` is a name of its data, by which the server keeps it."""
        self._server = server
        self._setting = setting
        self._data = data
        self._own_environment = own_environment
        self._children: list[Child] = []

    def fit(self, cell: Cell, dataset: Dataset) -> FitResult:
        """Fit one cell. Never raises."""
        try:
            data: Dataset | str = self._data
            if data:
                self._server.keep(self._data, lambda: for_fitting(dataset))
            else:
                data = for_fitting(dataset)
            task = FitTask(cell, data, own_environment=self._own_environment)
            return self._result(task, cell, dataset)
        except _Lost as problem:
            return FitResult(Status.ERROR, reason=str(problem))

    def refit(self, cell: Cell, dataset: Dataset, purpose: str) -> Release:
        """Fit the method of a cell once more, for a metric."""
        try:
            fitted = self._result(FitTask(cell, for_fitting(dataset), purpose), cell, dataset)
        except _Lost as problem:
            raise FitFailedError(str(problem)) from None
        if fitted.release is not None:
            return fitted.release
        raise _as_error(fitted)

    def procedure(self, work: Work, shared: bytes) -> Callable[[Sequence[Any]], Batch | FitResult]:
        """Return a function that does items of a procedure, all of them in one process.

        `shared` is packed: to read it is to import the method.
        """
        try:
            child = self._fork(BatchTask(work, shared))
        except _Lost as problem:
            lost = FitResult(Status.ERROR, reason=str(problem))
            return lambda items: lost

        def run(items: Sequence[Any]) -> Batch | FitResult:
            try:
                packed = np.frombuffer(wire.packed(items), dtype=np.uint8)
                answer = self._answer(child, {"items": packed})
                return _batch(answer) if "results" in answer else wire.to_failure(answer)
            except _Lost as problem:
                return FitResult(Status.ERROR, reason=str(problem))
            except (wire.WireError, LookupError, TypeError, ValueError) as problem:
                return wire.garbled(problem)

        return run

    def _result(self, task: FitTask, cell: Cell, dataset: Dataset) -> FitResult:
        child = self._fork(task)
        kept = False

        def model(facts: wire.ModelFacts) -> ReleasedModel:
            nonlocal kept
            kept = True
            return _stand_in(child, facts)

        try:
            fitted = wire.to_result(self._answer(child), dataset.encoder, model)
        except (wire.WireError, LookupError, TypeError) as problem:
            fitted = wire.garbled(problem)
        finally:
            if not kept:
                self._end(child)
        return _with_own_target(fitted, cell)

    def _fork(self, task: object) -> Child:
        child = self._server.fork(task, self._setting)
        self._children.append(child)
        return child

    def _answer(self, child: Child, question: wire.Plain = None) -> wire.Plain:
        message = child.receive() if question is None else child.ask(question)
        modules = message["modules"]
        self._server.load([name for name in modules if isinstance(name, str)][:_MODULES])
        return message["result"]

    def _end(self, child: Child) -> None:
        self._children.remove(child)
        child.close()

    def close(self) -> None:
        """End all processes that are left."""
        for child in [*self._children]:
            self._end(child)


def _with_own_target(fitted: FitResult, cell: Cell) -> FitResult:
    """Refuse a ledger whose target is not that of the cell: its proof would be of another one."""
    if fitted.release is None or fitted.release.ledger is None:
        return fitted
    ledger = fitted.release.ledger
    budget = None if cell.epsilon is None else Budget(cell.epsilon, cell.delta)
    if ledger.budget == budget and ledger.delta == cell.delta:
        return fitted
    return wire.garbled(InvalidReleaseError("the ledger has another target than the cell"))


def _as_error(fitted: FitResult) -> BenchError:
    if fitted.status is Status.SKIPPED:
        return NotApplicable(fitted.reason)
    problem = FitFailedError(fitted.reason)
    # Shown in the internal log, where the text of the method's own exception belongs.
    problem.add_note(fitted.log)
    return problem


def _batch(answer: wire.Plain) -> Batch:
    results, seconds = answer["results"], answer["seconds"]
    if not isinstance(results, list) or type(seconds) is not float or not seconds >= 0:
        raise wire.WireError("a batch has no results")
    return Batch(results, seconds if math.isfinite(seconds) else 0.0)


_server: FitServer | None = None


def fit_server() -> FitServer:
    """Return the server of this process, which is started if there is none."""
    global _server
    if _server is None or not _server.usable:
        if _server is None:
            atexit.register(_close)
        else:
            _server.close()
        _server = FitServer()
    return _server


def running_server() -> FitServer | None:
    """Return the server of this process; None where no cell has needed one yet."""
    return _server if _server is not None and _server.usable else None


def _close() -> None:
    if _server is not None:
        _server.close()


@contextlib.contextmanager
def isolated(
    setting: Setting | None = None, data: str = "", *, own_environment: bool = False
) -> Iterator[IsolatedFits]:
    """Provide fits in processes of their own for one cell; all of them end with it."""
    setting = setting or Setting()
    fits = IsolatedFits(fit_server(), setting, data, own_environment=own_environment)
    try:
        yield fits
    finally:
        fits.close()


# Released models ----------------------------------------------------------------------------------


def _stand_in(child: Child, facts: wire.ModelFacts) -> ReleasedModel:
    if facts.rounds is not None:
        return _DistantRounds(child, facts.rounds)
    if facts.threshold is not None:
        return _DistantDetector(child, facts.threshold)
    return _DistantModel(child)


def _predictions(child: Child, values: Floats, round: int | None) -> npt.NDArray[np.float64]:
    try:
        answer = child.ask({"values": np.asarray(values), "round": round})
        if "failed" in answer:
            raise _as_error(wire.to_failure(answer["failed"]))
        predicted = answer["answer"]
    except (_Lost, wire.WireError, LookupError, TypeError) as problem:
        text = str(problem) if isinstance(problem, _Lost) else type(problem).__name__
        raise FitFailedError(f"the released model gives no predictions: {text}") from None
    if not isinstance(predicted, np.ndarray):
        raise InvalidReleaseError("the released model answers with what is no array of numbers")
    return predicted


@final
class _DistantModel(ReleasedModel):
    """A model in the process that made it."""

    def __init__(self, child: Child, round: int | None = None) -> None:
        self._child = child
        self._round = round

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return _predictions(self._child, values, self._round)


@final
class _DistantRounds(TrainedInRounds):
    """A model trained in rounds, in the process that made it."""

    def __init__(self, child: Child, rounds: int) -> None:
        self._child = child
        self._rounds = rounds

    @property
    def rounds(self) -> int:
        return self._rounds

    def after(self, round: int) -> ReleasedModel:
        return _DistantModel(self._child, round)

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return _predictions(self._child, values, None)


@final
class _DistantDetector(Detector):
    """A detector in the process that made it."""

    def __init__(self, child: Child, threshold: float) -> None:
        self._child = child
        self._threshold = threshold

    @property
    def threshold(self) -> float:
        return self._threshold

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return _predictions(self._child, values, None)
