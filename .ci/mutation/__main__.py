"""Mutation testing: plants small faults in the code, and counts those that a test notices.

    .venv/bin/python .ci/mutation                      all targets, then the report
    .venv/bin/python .ci/mutation privacy --module bench/privacy/ledger.py
    .venv/bin/python .ci/mutation privacy --minutes 20 stops there; the next call resumes
    .venv/bin/python .ci/mutation --survivors          lists what no test noticed
    .venv/bin/python .ci/mutation --report             writes scores and page from what is stored

`operators.py` says what is changed, `workers.py` how tests are run, `scores.py` what is reported.
Results are kept in build/mutation; a mutant is run again when its module changed, or, where it
survived and is not argued to be equivalent, when a test changed. `--fresh` runs all again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import scores
from operators import Mutant, Source
from targets import TARGETS, Target

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(prog=".ci/mutation", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--module", action="append", help="only this module, by its path")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument(
        "--quick",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="leave out tests that take longer; survivors are run again without this option",
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--survivors", action="store_true", help="list survivors and stop")
    parser.add_argument("--report", action="store_true", help="write scores and page and stop")
    parser.add_argument("--commit", default="", help="what the results belong to; default: HEAD")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}; expected one of {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in options.targets or TARGETS]
    if options.survivors:
        for target in chosen:
            scores.print_survivors(ROOT, target, options.module)
        return
    until = time.monotonic() + 60.0 * options.minutes
    if not options.report:
        for target in chosen:
            # Each in a process of its own: pytest collects once per process.
            if options.inside:
                _run(target, options.module, until, options.quick, options.fresh)
            else:
                minutes = (until - time.monotonic()) / 60.0
                _start(target, options.module, minutes, options.quick, options.fresh)
    if not options.inside:
        scores.write(ROOT, options.commit)


def _start(
    target: Target, modules: list[str] | None, minutes: float, quick: float, fresh: bool
) -> None:
    command = [_python(target), str(Path(__file__).parent), target.name, "--inside"]
    command += ["--minutes", str(minutes), "--quick", str(quick), *["--fresh"] * fresh]
    for module in modules or []:
        command += ["--module", module]
    # A fixed hash seed: what a test does must not change from one process to the next.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment)
    if done.returncode != 0:
        sys.exit(done.returncode)


def _python(target: Target) -> str:
    if not target.environment:
        return sys.executable
    bench = Path(sys.executable).with_name("bench")
    subprocess.run([bench, "env", "build", target.environment], check=True)
    command = [bench, "env", "python", target.environment]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _run(
    target: Target, modules: list[str] | None, until: float, quick: float, fresh: bool
) -> None:
    from workers import Runner, Session

    sources = [Source(ROOT / path, ROOT) for path in target.modules(ROOT)]
    mutants = scores.chosen(target, sources)
    if modules:
        mutants = [one for one in mutants if one.module in modules]
    store = scores.Store(ROOT, target)
    tests = scores.tests_digest(ROOT, target)
    argued = scores.equivalents(ROOT)
    waiting = [
        one
        for one in mutants
        # What was argued to change nothing survives other tests too: once per module is enough.
        if fresh
        or (store.is_due(one, tests, quick) and not (one.id in argued and store.current(one)))
    ]
    print(f"{target.name}: {len(mutants)} mutants, {len(waiting)} to run", flush=True)
    if not waiting:
        return

    def work(runner: Runner) -> None:
        try:
            for number, mutant in enumerate(sorted(waiting, key=runner.cost), 1):
                if time.monotonic() > until:
                    print(f"{target.name}: out of time; the same command resumes", flush=True)
                    return
                verdict = runner.evaluate(mutant, quick)
                store.add(mutant, verdict.status, verdict.by, tests, quick)
                _say(number, len(waiting), mutant, verdict.status, verdict.seconds)
        finally:
            runner.close()

    cache = ROOT / "build" / "mutation" / f"{target.name}-lines.json"
    arguments = [*target.tests, "-m", target.markers, "--capture=fd"]
    Session(ROOT, sources, cache, work).run(arguments)


def _say(number: int, total: int, mutant: Mutant, status: str, seconds: float) -> None:
    where = f"{mutant.module}:{mutant.line} {mutant.change}"
    line = f"{number}/{total} {status} {seconds:.1f}s {where}"
    # pytest captures what is printed; this is the terminal's own descriptor, saved by it.
    print(line, file=sys.__stderr__, flush=True)


if __name__ == "__main__":
    main()
