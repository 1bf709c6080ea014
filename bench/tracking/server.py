"""Runs a server that ends with the command that started it, however that ends.

The server and its workers are a process group. A second process, the guard, waits for the end of a
pipe that only this process holds: the system closes it when this process ends, even by SIGKILL, and
the guard ends the group. On Linux the server is told of our end by the system as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

_TELL_OF_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0

INTERRUPTED = 130

_GUARD = """
import os, signal, sys, time
group, seconds = int(sys.argv[1]), float(sys.argv[2])
sys.stdin.buffer.read()
deadline = time.monotonic() + seconds
try:
    os.killpg(group, signal.SIGTERM)
    while time.monotonic() < deadline:
        time.sleep(0.05)
        os.killpg(group, 0)
    os.killpg(group, signal.SIGKILL)
except (ProcessLookupError, PermissionError):
    pass  # all of it has ended
"""


def serve(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a server until it ends, Ctrl-C, or the end of the process that started this one.

    Under `nohup`, which ignores SIGHUP, the end of that process does not matter.
    """
    parent, detached = os.getppid(), signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    server = subprocess.Popen(
        command, env=dict(environment), start_new_session=True, preexec_fn=_told_of_parent()
    )
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, str(server.pid), str(_END_SECONDS)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        while detached or os.getppid() == parent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return server.wait(_LOOK_SECONDS)
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        assert guard.stdin is not None
        guard.stdin.close()  # as our own end would do
        _wait(guard, server)


def _told_of_parent() -> Callable[[], None] | None:
    """Return what a child does before it becomes the server."""
    if sys.platform != "linux":
        return None
    # Loaded here: little is safe between fork and exec.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def told() -> None:
        prctl(_TELL_OF_PARENT, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # too late to be told

    return told


def _wait(*processes: subprocess.Popen[bytes]) -> None:
    """Wait until these processes have ended, which the guard makes them do."""
    deadline = time.monotonic() + 2 * _END_SECONDS
    while time.monotonic() < deadline:
        # A second Ctrl-C is no reason to leave anything behind.
        with contextlib.suppress(KeyboardInterrupt):
            # All of them: one that has ended counts as a member of its group until then.
            if None not in [process.poll() for process in processes]:
                return
            time.sleep(0.02)
