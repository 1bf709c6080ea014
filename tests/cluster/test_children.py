"""Methods that start processes of their own do not hang the worker."""

from __future__ import annotations

import subprocess
import sys

TASK = """
import multiprocessing

import ray

from bench.cluster.ray_cluster import joined
from bench.engine.limits import let_children_end
from bench.engine.options import RunOptions


def pools(count):
    let_children_end()
    for _ in range(count):
        # It is ended while its second process is still being made, now and then.
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
    return count


with joined(RunOptions(out=None, cpus=1)):
    print("pools:", ray.get(ray.remote(max_retries=0)(pools).remote(60), timeout=600))
"""


def test_sixty_pools_end_in_a_worker_of_ray() -> None:
    """Without the fix a worker hangs within the first ten of them."""
    done = subprocess.run(
        [sys.executable, "-c", TASK], capture_output=True, text=True, check=False, timeout=900
    )
    assert "pools: 60" in done.stdout, done.stderr[-2000:]


FORK = """
import os
import signal
import sys

from bench.engine.limits import let_children_end

signal.signal(signal.SIGTERM, lambda *_: None)  # as that of a worker: a child would live on
let_children_end()
let_children_end()
for _ in range(200):
    child = os.fork()
    if not child:
        signal.pause()
    os.kill(child, signal.SIGTERM)  # often before the child has run a line
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert callable(signal.getsignal(signal.SIGTERM)), "the worker's own handler stays"
print("ended")
"""


def test_children_end_when_they_are_told_to() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout == "ended\n", done.stderr
