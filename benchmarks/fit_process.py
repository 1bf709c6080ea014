"""Cost of a process per fit, against the same fit in the process that asks for it, in one run.

Processor time of all processes is compared, since the wall time of a busy machine says little: the
process that asks, the server that forks, and the forked processes. Named rivals: the fit in this
process (what a shared worker did), and a fresh interpreter per fit, which imports everything anew.

    python benchmarks/fit_process.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

FITS = 60
METHODS = ("real", "marginals", "ldpdc")
_TICKS = os.sysconf("SC_CLK_TCK")

FRESH = "import bench.engine.isolation.server"


def main() -> None:
    from bench.conformance.tables import ToyTable
    from bench.engine.fit import fit_cell
    from bench.engine.isolation.processes import fit_server, isolated
    from bench.plugins import registry
    from bench.plugins.source import build_dataset
    from bench.results.records import Cell, Variant

    dataset = build_dataset(ToyTable())

    def cell(method: str, seed: int) -> Cell:
        epsilon = 1.0 if registry.method_class(method).uses_budget else None
        return Cell(
            Variant(method, method), Variant("toy", "toy"), ipc=10, full_size=False,
            epsilon=epsilon, delta=1e-5, seed=seed, split="default", split_seed=0,
        )  # fmt: skip

    def isolated_fit(method: str, seed: int) -> None:
        with isolated(data="toy") as fits:
            result = fits.fit(cell(method, seed), dataset)
        assert result.release is not None, result.reason

    begun = time.perf_counter()
    server = fit_server().process.pid
    print(
        f"starting the server, once per worker: {time.perf_counter() - begun:.1f} s, "
        f"{_spent(server):.1f} s of processor time, {_memory(server):.0f} MB"
    )
    fresh = _processor(lambda: subprocess.run([sys.executable, "-c", FRESH], check=True))
    print(f"{FITS} fits, processor time of one, in ms:")
    for extra in ("", "torch"):
        if extra:
            fit_server().load(["torch"])
            __import__("torch")
        for method in METHODS:
            for seed in range(3):  # imports, calibrates
                isolated_fit(method, seed)
                fit_cell(cell(method, seed), dataset)
            here = _each(lambda seed, method=method: fit_cell(cell(method, seed), dataset))
            there = _each(lambda seed, method=method: isolated_fit(method, seed), server)
            loaded = f" ({extra} loaded)" if extra else ""
            print(
                f"  {method}{loaded}: here {1e3 * here:.1f}, in its own process {1e3 * there:.1f}, "
                f"{1e3 * (there - here):.1f} more; a fresh interpreter {1e3 * fresh:.0f} more, "
                f"{fresh / (there - here):.0f} times that"
            )


def _each(work: Callable[[int], object], server: int | None = None) -> float:
    before = _processor_now(server)
    for seed in range(FITS):
        work(seed)
    time.sleep(0.5)  # the last of them are still ending
    return (_processor_now(server) - before) / FITS


def _processor_now(server: int | None) -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + (0.0 if server is None else _spent(server))


def _processor(work: Callable[[], object]) -> float:
    before = _children()
    work()
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spent(pid: int) -> float:
    """Processor seconds of a process and of its children that have ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _memory(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]) / 1024


if __name__ == "__main__":
    main()
