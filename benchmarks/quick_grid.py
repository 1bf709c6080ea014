"""The whole quick grid, from the command to its end: wall and processor time, before and after.

    python benchmarks/quick_grid.py                     # this checkout alone
    python benchmarks/quick_grid.py --base COMMIT       # and an earlier commit, in the same run

The earlier commit is checked out into a temporary git worktree, built as a wheel and run with the
same environment, the same options and the same number of CPUs: first the one, then the other, as
often as asked. Processor time is that of the command and of all that it started. A ratio means
little on a machine with other work; processor time suffers less than wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bench", "methods", "datasets", "metrics", "leaderboard")


def installed(source: Path, target: Path) -> Path:
    """Build a wheel of a checkout and unpack it; imported from there, it hides all others."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as scratch:
        # From a copy: a build leaves folders behind.
        copied = Path(scratch) / "source"
        copied.mkdir()
        names = ["pyproject.toml", "setup.py", "README.md", "LICENSE", *PACKAGES]
        subprocess.run(["cp", "-r", *[str(source / name) for name in names], copied], check=True)
        wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*wheel, "--wheel-dir", scratch, copied], check=True)
        (built,) = Path(scratch).glob("*.whl")
        subprocess.run(
            [*pip, "install", "--no-deps", "--no-index", "--target", target, built], check=True
        )
    return target


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, such as Ray's workers: they are counted."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def wait_for_orphans() -> None:
    """Wait for the end of all that was started."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def timed(packages: Path, out: Path, arguments: list[str]) -> tuple[float, float]:
    """Run the grid; return wall and processor seconds."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bench", "run", "--out", str(out), *arguments]
    adopt_orphans()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=out.parent, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    wait_for_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1:
        sys.exit(f"the run failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    used = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return seconds, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="A commit to compare with.")
    parser.add_argument("--grid", default="quick")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("rest", nargs="*", help="Further options of `bench run`, after `--`.")
    asked = parser.parse_args()
    arguments = ["--grid", asked.grid, "--cpus", str(asked.cpus), *asked.rest]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sides = {"this checkout": installed(ROOT, folder / "new")}
        if asked.base:
            tree = folder / "tree"
            git = ["git", "-C", str(ROOT), "worktree"]
            subprocess.run([*git, "add", "--quiet", "--detach", str(tree), asked.base], check=True)
            try:
                sides = {asked.base: installed(tree, folder / "old"), **sides}
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for turn in range(asked.repeat):
            for number, (name, packages) in enumerate(sides.items()):
                out = folder / f"run-{turn}-{number}"
                found[name].append(timed(packages, out, arguments))
        middle = {
            name: tuple(statistics.median(column) for column in zip(*times, strict=True))
            for name, times in found.items()
        }
        for name, (wall, used) in middle.items():
            print(
                f"{asked.grid} on {asked.cpus} CPUs, {name}: {wall:.0f} s, processor {used:.0f} s"
            )
        if asked.base:
            (wall, used), (wall2, used2) = middle.values()
            print(f"ratio: wall {wall / wall2:.2f}, processor {used / used2:.2f}")


if __name__ == "__main__":
    main()
