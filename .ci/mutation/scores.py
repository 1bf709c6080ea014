"""Stores what became of mutants, and reports it: tests/mutation/scores.json, docs/mutation.md."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operators import Mutant, Source
from targets import SEED, TARGETS, Target

VERSION = "1"
"""Version of the operators: scores of different versions do not compare."""
SURVIVED = ("survived", "uncovered")
EQUIVALENT = "tests/mutation/equivalent.toml"
SCORES = "tests/mutation/scores.json"
PAGE = "docs/mutation.md"


def chosen(target: Target, sources: Sequence[Source]) -> list[Mutant]:
    """Return the mutants of a target: all, or a sample that follows from their names and the seed.

    Each mutant has a fixed rank, so that a larger sample contains a smaller one, and a change of
    one module moves the mutants of no other.
    """
    mutants = [mutant for source in sources for mutant in source.mutants()]
    if target.sample is None:
        return mutants
    ranked = sorted(mutants, key=lambda one: hashlib.sha256(f"{SEED} {one.id}".encode()).digest())
    kept = {one.id for one in ranked[: target.sample]}
    return [one for one in mutants if one.id in kept]


class Store:
    """Results of one target, one line of JSON each; the last line of a mutant counts."""

    def __init__(self, root: Path, target: Target) -> None:
        self._path = root / "build" / "mutation" / f"{target.name}.jsonl"
        self.found: dict[str, dict[str, str]] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.found[entry["id"]] = entry

    def current(self, mutant: Mutant) -> dict[str, str] | None:
        """Return the result of a mutant unless its module changed since."""
        entry = self.found.get(mutant.id)
        return entry if entry is not None and entry["module"] == mutant.source.digest else None

    def is_due(self, mutant: Mutant, tests: str, quick: float) -> bool:
        """Whether a mutant must be run: never run, module changed, or survived other tests."""
        entry = self.current(mutant)
        if entry is None:
            return True
        fewer = float(entry["quick"]) < quick
        return entry["status"] in SURVIVED and (entry["tests"] != tests or fewer)

    def add(self, mutant: Mutant, status: str, by: str, tests: str, quick: float) -> None:
        entry = {
            "id": mutant.id,
            "status": status,
            "by": by,
            "module": mutant.source.digest,
            "tests": tests,
            "quick": str(quick),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        self.found[mutant.id] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


def tests_digest(root: Path, target: Target) -> str:
    """Return the hash of all files that tests of a target consist of."""
    digest = hashlib.sha256()
    for name in [*target.tests, "tests/support", "tests/conftest.py"]:
        path = root / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def equivalents(root: Path) -> dict[str, dict[str, str]]:
    """Return the mutants that were argued to change nothing, by their names."""
    path = root / EQUIVALENT
    if not path.exists():
        return {}
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    entries: list[dict[str, str]] = document.get("mutant", [])
    return {entry["id"]: entry for entry in entries}


def print_survivors(root: Path, target: Target, modules: list[str] | None) -> None:
    """Print the survivors of a target that are not argued to be equivalent."""
    store, known = Store(root, target), equivalents(root)
    sources = [Source(root / path, root) for path in target.modules(root)]
    for mutant in chosen(target, sources):
        if modules and mutant.module not in modules:
            continue
        entry = store.current(mutant)
        if entry is None or entry["status"] not in SURVIVED:
            continue
        if mutant.id not in known:
            print(f"{mutant.id} {entry['status']} {mutant.module}:{mutant.line} {mutant.change}")


def write(root: Path, commit: str) -> None:
    """Write scores and page from the stored results of all targets, which belong to a commit.

    A target that was never run in this checkout keeps the scores that were written before, with
    the commit that they belong to.
    """
    known = equivalents(root)
    path = root / SCORES
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"targets": {}}
    report: dict[str, Any] = {
        "version": VERSION,
        "python": _python(),
        "seed": SEED,
        "targets": {},
    }
    seen: set[str] = set()
    for target in TARGETS.values():
        counted = _target(root, target, known, seen)
        old = before["targets"].get(target.name)
        if old is not None and not Store(root, target).found and _comparable(before, report):
            report["targets"][target.name] = {"commit": before.get("commit"), **old}
        else:
            report["targets"][target.name] = {"commit": commit or _commit(root), **counted}
    stale = sorted(set(known) - seen)
    for name in stale:
        print(
            f"{EQUIVALENT}: {name} ({known[name]['change']}) is no mutant any more", file=sys.stderr
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (root / PAGE).write_text(page(report, known), encoding="utf-8")
    print(f"{SCORES}, {PAGE}")


def _comparable(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether scores that were written before are of the same operators and sample."""
    return all(before.get(name) == now[name] for name in ("version", "python", "seed"))


def _target(
    root: Path, target: Target, known: dict[str, dict[str, str]], seen: set[str]
) -> dict[str, Any]:
    store = Store(root, target)
    sources = [Source(root / path, root) for path in target.modules(root)]
    modules: dict[str, Counter[str]] = {}
    survivors: list[str] = []
    limits: list[float] = []
    tests, outdated = tests_digest(root, target), 0
    dates: set[str] = set()
    every = [mutant for source in sources for mutant in source.mutants()]
    seen.update(mutant.id for mutant in every)
    for mutant in chosen(target, sources):
        counts = modules.setdefault(mutant.module, Counter())
        entry = store.current(mutant)
        if entry is None:
            counts["missing"] += 1
            continue
        dates.add(entry["date"])
        status = entry["status"]
        if status in SURVIVED and mutant.id in known:
            status = "equivalent"
        elif status in SURVIVED:
            limits.append(float(entry["quick"]))
            outdated += entry["tests"] != tests
            survivors.append(f"{mutant.id} {mutant.module} {mutant.function}: {mutant.change}")
            status = "survived"
        counts[status] += 1
    return {
        "tests": list(target.tests),
        "all_mutants": len(every),
        "sample": target.sample,
        "environment": target.environment,
        "last_run": max(dates, default=""),
        "modules": {name: dict(sorted(counts.items())) for name, counts in modules.items()},
        "survivors": survivors,
        "survivors_of_earlier_tests": outdated,
        "longest_test": min(limits) if limits and min(limits) < math.inf else None,
    }


def _commit(root: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    z = 1.959963984540054
    share, denominator = successes / trials, 1.0 + z * z / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (centre - half) / denominator, (centre + half) / denominator


HEAD = """\
# Mutation scores

<!-- Written by `make mutation`. -->

A test suite is good if it fails when the code is wrong. Mutation testing measures that: it plants
one small fault at a time (a *mutant*: `<` becomes `<=`, a constant is increased by one, a statement
is removed) and runs the tests. A mutant is *killed* if a test fails or the tests exceed their time.
A mutant that changes no behaviour is *equivalent*; each of them has its reason below. The score is
the share of killed mutants among those that are not equivalent. `.ci/mutation/operators.py` lists
the operators and what is not mutated.
"""


def page(report: dict[str, Any], known: dict[str, dict[str, str]]) -> str:
    """Return the page of the documentation."""
    lines = [HEAD]
    lines.append(
        "| code | tests | mutants | killed | timeout | survived | equivalent | score | interval |"
    )
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, target in report["targets"].items():
        total: Counter[str] = Counter()
        for counts in target["modules"].values():
            total.update(counts)
        tests = ", ".join(f"`{one}`" for one in target["tests"])
        sampled = target["sample"] is not None
        lines.append(f"| {name} | {tests} | {_row(total, target, sampled)} |")
    lines.append("")
    lines.append(
        "Where a sample was drawn, `mutants` says of how many (seed "
        f"{report['seed']}), and the 95% interval is Wilson's. Mutants that were not run are in no "
        "score; survivors that were not run again since tests were added count as survivors. "
        f"Operators of version {report['version']}, Python {report['python']}. Last runs: "
        + ", ".join(
            f"{name} {one['last_run'] or 'never'} (commit {one['commit']})"
            for name, one in report["targets"].items()
        )
        + "."
    )
    for name, target in report["targets"].items():
        lines += [
            "",
            f"## {name}",
            "",
            "| module | mutants | killed | timeout | survived | equivalent | score |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        for module, counts in target["modules"].items():
            lines.append(f"| `{module}` | {_row(Counter(counts), None, False)} |")
        missing = sum(counts.get("missing", 0) for counts in target["modules"].values())
        if missing and target["environment"]:
            lines += [
                "",
                f"{missing} mutants were not run: their tests need the environment "
                f"`{target['environment']}` (`bench env build {target['environment']}`), in which "
                f"`make mutation ARGS='{name}'` runs them.",
            ]
        if target["survivors"]:
            limit = target["longest_test"]
            short = "" if limit is None else f", by tests of at most {limit:g} s each"
            earlier = target["survivors_of_earlier_tests"]
            if earlier:
                short += f" ({earlier} of {len(target['survivors'])} before tests were changed)"
            lines += ["", f"Survivors{short}:", ""]
            for survivor in target["survivors"]:
                lines.append("- " + survivor.partition(" ")[2].replace("|", "\\|"))
    lines += ["", "## Equivalent mutants", ""]
    lines += ["| module | change | why nothing changes |", "|---|---|---|"]
    for entry in sorted(known.values(), key=lambda one: (one["module"], one["change"])):
        change = entry["change"].replace("|", "\\|")
        lines.append(
            f"| `{entry['module']}` | {change} | {entry['why'].replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def _row(counts: Counter[str], target: dict[str, Any] | None, sampled: bool) -> str:
    total = sum(counts.values())
    caught = counts["killed"] + counts["timeout"]
    judged = total - counts["equivalent"] - counts["missing"]
    numbers = [
        str(total) if not sampled or target is None else f"{total} of {target['all_mutants']}"
    ]
    numbers += [str(counts[one]) for one in ("killed", "timeout", "survived", "equivalent")]
    numbers.append(f"{100 * caught / judged:.1f}%" if judged else "-")
    if target is not None:
        low, high = wilson(caught, judged)
        shown = sampled and judged > 0
        numbers.append(f"{100 * low:.1f}% to {100 * high:.1f}%" if shown else "-")
    if counts["missing"]:
        numbers[0] += f" ({counts['missing']} not run)"
    return " | ".join(numbers)
