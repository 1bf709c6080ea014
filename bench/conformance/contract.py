"""Checks of the contract: what a method says, gives back and repeats."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from bench.conformance.findings import Finding, Outcome
from bench.conformance.privacy import released_bytes
from bench.conformance.subject import AWKWARD, Subject, table
from bench.errors import NotApplicable
from bench.plugins.release import Release

_SAID = "CONTRIBUTING.md, `What a method must keep to`"


def says_what_it_is(subject: Subject) -> Iterator[Finding]:
    """Name, title, paper, documented hyperparameters that can be written down."""
    kind = subject.kind
    missing = [name for name in ("title", "paper") if not getattr(kind, name, "")]
    document = getattr(inspect.getmodule(kind), "__doc__", None) or ""
    if len(document.split()) < 10:
        missing.append("a module docstring that says what is computed, with paper and equation")
    outcome = Outcome.WARNING if missing else Outcome.PASSED
    yield Finding(
        "says what it is",
        outcome,
        f"without {', '.join(missing)}" if missing else f"{kind.title}",
        "a reader of the leaderboard sees these; say `its own` where there is no paper",
    )
    try:
        json.dumps(subject.method.parameters())
    except TypeError as problem:
        yield Finding(
            "hyperparameters",
            Outcome.FAILED,
            str(problem),
            "fields must be numbers, texts, booleans or tuples of these: they stand in keys and "
            "result tables",
        )
        return
    without = [item.name for item in fields(kind) if _required(item)]  # type: ignore[arg-type]
    yield Finding(
        "hyperparameters",
        Outcome.FAILED if without else Outcome.PASSED,
        f"no default for {', '.join(without)}" if without else f"{len(fields(kind))} fields",  # type: ignore[arg-type]
        "give every field the paper's value as its default, the same for every dataset",
    )


def _required(item: object) -> bool:
    from dataclasses import MISSING

    return (
        getattr(item, "default", None) is MISSING
        and getattr(item, "default_factory", None) is MISSING
    )


def fits_some_task(subject: Subject) -> Iterator[Finding]:
    """It fits at least one kind of table, and says why not where it does not."""
    refused = {name: reason for name, reason in subject.tasks.items() if reason}
    silent = [name for name, reason in refused.items() if reason == "(no reason)"]
    words = [f"fits {', '.join(subject.fitting) or 'nothing'}"]
    words += [f"not {name}: {reason}" for name, reason in refused.items()]
    outcome = Outcome.FAILED if silent or not subject.fitting else Outcome.PASSED
    yield Finding(
        "applicability",
        outcome,
        "\n".join(words),
        'raise NotApplicable("why") for a task that it does not fit, and only there',
    )


def gives_what_was_asked(subject: Subject) -> Iterator[Finding]:
    """Rows inside the schema, as many as asked for of each class."""
    problems = []
    for name in subject.fitting:
        for ipc in (12, None):
            release = subject.run(name, ipc=ipc).release
            problems += [
                f"{name}, {_size(ipc)}: {text}" for text in _misfits(subject, name, release, ipc)
            ]
    yield Finding(
        "size and schema",
        Outcome.FAILED if problems else Outcome.PASSED,
        "\n".join(problems) or f"{_kind(subject)} on {', '.join(subject.fitting)}",
        "`spec.rows_per_class(private.counts)` says how many rows; values are encoded, one-hot "
        "blocks may be soft, all within the encoder's range",
    )


def _misfits(subject: Subject, name: str, release: Release, ipc: int | None) -> Iterator[str]:
    dataset = table(name)
    if release.rows is None or not subject.method.uses_ipc:
        return
    classes = len(dataset.schema.classes)
    found = np.bincount(release.rows.labels, minlength=classes).tolist()
    wanted = [ipc] * classes if ipc is not None else list(dataset.counts.by_class)
    if found != wanted:
        yield f"{found} rows of the classes, asked for {wanted}"


def _kind(subject: Subject) -> str:
    return "a model" if subject.run(subject.fitting[0]).release.rows is None else "rows"


def _size(ipc: int | None) -> str:
    return "full size" if ipc is None else f"{ipc} rows per class"


def repeats_under_a_seed(subject: Subject) -> Iterator[Finding]:
    """The same seed gives the same bytes; another seed gives others."""
    check = "same seed, same bytes"
    if not subject.kind.seeded:
        yield Finding(check, Outcome.NOT_CHECKED, "it declares that it cannot be seeded")
        return
    name = subject.fitting[0]
    dataset = table(name)
    first, again, other = (
        released_bytes(release, dataset)
        for release in (
            subject.run(name).release,
            subject.again(name).release,
            subject.run(name, seed=5).release,
        )
    )
    fix = (
        "draw only from the `rng` that is passed in (torch: a torch.Generator seeded from it), "
        "never from a global generator, the clock or the order of a set"
    )
    if first != again:
        yield Finding(check, Outcome.FAILED, "two runs with one seed differ", fix)
    elif first == other and subject.method.uses_budget:
        yield Finding(
            check, Outcome.FAILED, "another seed gives the same release: is there noise?", fix
        )
    else:
        yield Finding(check, Outcome.PASSED)


def survives_awkward_tables(subject: Subject) -> Iterator[Finding]:
    """Tiny classes, constant columns, one feature, more rows asked for than there are."""
    if "table" not in subject.fitting:
        yield Finding("awkward tables", Outcome.NOT_CHECKED, "it does not fit tables with classes")
        return
    problems = []
    for name in AWKWARD:
        for ipc in (3, 40):
            try:
                release = subject.run(name, ipc=ipc).release
            except NotApplicable as reason:
                if not str(reason):
                    problems.append(f"{name}: not applicable without a reason")
                continue
            except Exception as problem:
                problems.append(f"{name}, {_size(ipc)}: {type(problem).__name__}: {problem}")
                continue
            problems += [f"{name}: {text}" for text in _misfits(subject, name, release, ipc)]
    yield Finding(
        "awkward tables",
        Outcome.FAILED if problems else Outcome.PASSED,
        "\n".join(problems) or f"{', '.join(AWKWARD)}; 3 and 40 rows per class",
        f"a division by a variance, a count or a class share of zero? See {_SAID}",
    )
