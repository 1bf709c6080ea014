"""A process of its own for each fit: a server with the libraries loaded, which forks.

Workers are reused, and a plugin can change more than its own objects: torch's default type, a
global generator, a function of this package that it patches. Whatever it changes ends with the
process in which it ran. Starting an interpreter with torch for each fit would take seconds; a fork
of one that has loaded it takes milliseconds.

    worker ----- control socket -----> server        loads libraries, never runs a plugin
                                          | fork
           <---- one socket per call -- child         runs the plugin, answers, ends

The server is single-threaded when it forks. Child and server end with the worker. A child that ends
without an answer raises `ProcessLost` in the worker. Linux only: elsewhere `call` runs the function
in the calling process, since other systems' libraries do not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar, final

# Between two processes of one run, as Ray does; nothing is read from a file.
import cloudpickle  # noqa: TID251

from bench.errors import BenchError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

AVAILABLE = sys.platform == "linux"

_LENGTH = struct.Struct("!Q")
_LOADED = b"L"
_CALL = b"C"
_PIECE = 2**20
_PR_SET_PDEATHSIG = 1


@final
class ProcessLost(BenchError):
    """The process of a call ended without an answer: it crashed, or was killed."""


@final
class ForkServer:
    """Runs functions in forked processes. It starts with the first call, and ends with us."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """`preload` names modules to import before the first fork; absent ones are skipped."""
        self._preload = tuple(preload)
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def call(
        self,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Return what the function returns in a new process; its exception is raised here.

        Function, arguments and result cross by pickle: they never come from a file.
        """
        if not AVAILABLE:
            return function(*arguments, **named)
        request = cloudpickle.dumps((function, arguments, named))
        ours, theirs = socket.socketpair()
        control = self._server()
        with ours:
            try:
                with theirs:
                    socket.send_fds(control, [_CALL], [theirs.fileno()])
                _send(ours, request)
                answer = _receive(ours)
            except OSError:
                answer = None
        if answer is None:
            raise ProcessLost("the process of the call ended without an answer")
        good, value = cloudpickle.loads(answer)
        if good:
            result: Result = value
            return result
        raise value

    def close(self) -> None:
        """End the server; calls that run in other threads lose their processes."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _server(self) -> socket.socket:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *self._preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A worker on a cluster may have its code from elsewhere than the installation.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._control = ours
        if ours.recv(1) != _LOADED:
            self.close()
            raise ProcessLost("the server of processes did not start")
        return ours


def _serve(control: socket.socket, preload: Sequence[str]) -> None:
    """Fork for every socket that arrives, until the other end is closed."""
    for name in preload:
        module, _, function = name.partition(":")
        with contextlib.suppress(ImportError):
            loaded = importlib.import_module(module)
            if function:
                getattr(loaded, function)()
    # Children are not waited for: what matters is whether they answered.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control.sendall(_LOADED)
    while True:
        message, (*descriptors,), _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                control.close()
                _end_with_parent()
                _answer(connection)


def _answer(connection: socket.socket) -> None:
    """Do one call in this process and end it, whatever the function does."""
    end = os._exit  # the function may patch it
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = _receive(connection)
        if request is None:
            end(1)
        function, arguments, named = cloudpickle.loads(request)
        try:
            content = cloudpickle.dumps((True, function(*arguments, **named)))
        except Exception as problem:
            content = _crossing(problem)
        _send(connection, content)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        end(0)


def _crossing(problem: Exception) -> bytes:
    """Return a message with an exception, or with its type where the exception cannot cross."""
    try:
        content: bytes = cloudpickle.dumps((False, problem))
        cloudpickle.loads(content)
    except Exception:
        plain = BenchError(f"{type(problem).__name__}, which cannot leave its process")
        content = cloudpickle.dumps((False, plain))
    return content


def _end_with_parent() -> None:
    """Ask the kernel to end this process when the thread that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)))
    connection.sendall(content)


def _receive(connection: socket.socket) -> bytes | None:
    """Return a whole message; None where the other end closed before its end."""
    header = _exactly(connection, _LENGTH.size)
    return None if header is None else _exactly(connection, _LENGTH.unpack(header)[0])


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(min(_PIECE, size - len(content)))
        if not piece:
            return None
        content += piece
    return bytes(content)


if __name__ == "__main__":
    _end_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as _control:
        _serve(_control, sys.argv[2:])
