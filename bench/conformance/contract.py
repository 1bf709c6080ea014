"""Checks of the contract: source, description, size, schema, determinism, utility by epsilon."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np

from bench.conformance.privacy import released_bytes
from bench.conformance.subject import CheckResult, CheckStatus, Subject, passed_unless
from bench.conformance.tables import AWKWARD, toy_dataset
from bench.errors import NotApplicable, NotComputable
from bench.plugins import registry
from bench.plugins.metric import HEADLINES, Evaluation, Metric
from bench.plugins.release import Release

_SAID = "CONTRIBUTING.md, `What a method must keep to`"

_GLOBAL_SEEDS = ("seed", "manual_seed", "set_rng_state")
_GLOBAL_OWNERS = ("np.random", "numpy.random", "torch", "torch.random", "torch.cuda", "random")
_LEGACY = "rand randn randint random normal uniform choice permutation shuffle"
"""Names of functions of numpy's global generator."""
_FORBIDDEN_MODULES = {"pickle", "random", "secrets"}
_KERNEL_MODULES = {"bench.privacy.noise"}

_EPSILONS = (0.5, 5.0, 50.0)
_SEEDS = 3
_TOLERANCE = 0.1
"""Smallest difference that counts: scores of small releases of small tables are noisy."""


def source_has_no_bypass(subject: Subject) -> Iterator[CheckResult]:
    """Its source has no underscored attribute of others, no global generator or private module."""
    path = inspect.getsourcefile(subject.kind)
    if path is None:
        yield CheckResult("source", CheckStatus.NOT_CHECKED, "its source cannot be found")
        return
    problems = list(suspicious(Path(path).read_text(encoding="utf-8")))
    yield CheckResult(
        "source",
        passed_unless(problems),
        "\n".join(f"line {line}: {text}" for line, text in problems)
        or f"{Path(path).name} was read",
        "private rows, their noise and their sampling are the kernel's; public randomness is `rng`",
    )


def suspicious(source: str) -> Iterator[tuple[int, str]]:
    """Yield lines that bypass the kernel or the generators that are passed in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node)
        elif isinstance(node, ast.Import):
            yield from (
                (node.lineno, f"imports {item.name}")
                for item in node.names
                if item.name.split(".")[0] in _FORBIDDEN_MODULES
            )
        elif isinstance(node, ast.ImportFrom):
            module, names = node.module or "", {item.name for item in node.names}
            if module.split(".")[0] in _FORBIDDEN_MODULES:
                yield node.lineno, f"imports from {module}"
            elif module in _KERNEL_MODULES or names & {"Vault", "open_private"}:
                yield node.lineno, f"imports from {module}: noise belongs to the kernel"


def _attribute(node: ast.Attribute) -> Iterator[tuple[int, str]]:
    text = ast.unparse(node)
    owner = ast.unparse(node.value)
    hidden = node.attr.startswith("_") and not node.attr.startswith("__")
    if hidden and owner.split(".")[0] not in ("self", "cls"):
        yield node.lineno, f"{text}: an underscored attribute of something else"
    # `torch.Generator().manual_seed(...)` seeds a local generator, as it should be done.
    if node.attr in _GLOBAL_SEEDS and owner in _GLOBAL_OWNERS:
        yield node.lineno, f"{text}: a global seed"
    if owner in ("np.random", "numpy.random") and node.attr in _LEGACY.split():
        yield node.lineno, f"{text}: numpy's global generator"
    if text == "os.urandom":
        yield node.lineno, f"{text}: randomness that no seed repeats"


def has_a_description(subject: Subject) -> Iterator[CheckResult]:
    """Title, paper and docstring are given; hyperparameters are documented and serialisable."""
    kind = subject.kind
    missing = [name for name in ("title", "paper") if not getattr(kind, name, "")]
    document = getattr(inspect.getmodule(kind), "__doc__", None) or ""
    if len(document.split()) < 10:
        missing.append("a module docstring with what is computed, paper and equation")
    yield CheckResult(
        "description",
        CheckStatus.WARNING if missing else CheckStatus.PASSED,
        f"without {', '.join(missing)}" if missing else f"{kind.title}",
        "a reader of the leaderboard sees these; say `its own` where there is no paper",
    )
    try:
        json.dumps(subject.method.parameters())
    except TypeError as problem:
        yield CheckResult(
            "hyperparameters",
            CheckStatus.FAILED,
            str(problem),
            "fields must be numbers, texts, booleans or tuples of these: they stand in keys and "
            "result tables",
        )
        return
    items = fields(kind)  # type: ignore[arg-type]
    without = [item.name for item in items if item.default is item.default_factory is MISSING]
    yield CheckResult(
        "hyperparameters",
        passed_unless(without),
        f"no default for {', '.join(without)}" if without else f"{len(items)} with defaults",
        "give every field the paper's value as its default, the same for every dataset",
    )


def fits_some_task(subject: Subject) -> Iterator[CheckResult]:
    """It fits at least one kind of table, and gives a reason where it does not."""
    refused = {name: reason for name, reason in subject.tasks.items() if reason}
    silent = [name for name, reason in refused.items() if reason == "(no reason)"]
    words = [f"fits {', '.join(subject.fitting) or 'nothing'}"]
    words += [f"not {name}: {reason}" for name, reason in refused.items()]
    yield CheckResult(
        "applicability",
        passed_unless(silent or not subject.fitting),
        "\n".join(words),
        'raise NotApplicable("why") for a task that it does not fit, and only there',
    )


def releases_what_was_asked(subject: Subject) -> Iterator[CheckResult]:
    """Releases have rows inside the schema, as many of each class as asked for."""
    problems = []
    for name in subject.fitting:
        for ipc in (12, None):
            release = subject.run(name, ipc=ipc).release
            problems += [
                f"{name}, {_asked(ipc)}: {text}" for text in _misfits(subject, name, release, ipc)
            ]
    result = "a model" if subject.run(subject.fitting[0]).release.rows is None else "rows"
    yield CheckResult(
        "size and schema",
        passed_unless(problems),
        "\n".join(problems) or f"{result} on {', '.join(subject.fitting)}",
        "`spec.rows_per_class(private.counts)` is the number of rows; values are encoded, one-hot "
        "blocks may be soft, all within the encoder's range",
    )


def _misfits(subject: Subject, name: str, release: Release, ipc: int | None) -> Iterator[str]:
    if release.rows is None or not subject.method.uses_ipc:
        return
    dataset = toy_dataset(name)
    classes = len(dataset.schema.classes)
    counts = np.bincount(release.rows.labels, minlength=classes).tolist()
    wanted = [ipc] * classes if ipc is not None else list(dataset.counts.by_class)
    if counts != wanted:
        yield f"{counts} rows of the classes, asked for {wanted}"


def _asked(ipc: int | None) -> str:
    return "full size" if ipc is None else f"{ipc} rows per class"


def repeats_under_a_seed(subject: Subject) -> Iterator[CheckResult]:
    """The same seed gives the same bytes; another seed gives others."""
    check = "same seed, same bytes"
    if not subject.kind.seeded:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, "it declares that it cannot be seeded")
        return
    name = subject.fitting[0]
    dataset = toy_dataset(name)
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
        yield CheckResult(check, CheckStatus.FAILED, "two runs with one seed differ", fix)
    elif first == other and subject.method.uses_budget:
        yield CheckResult(
            check, CheckStatus.FAILED, "another seed gives the same release: is there noise?", fix
        )
    else:
        yield CheckResult(check, CheckStatus.PASSED)


def survives_awkward_tables(subject: Subject) -> Iterator[CheckResult]:
    """It handles tiny classes, constant columns, one feature, more rows asked for than given."""
    if "table" not in subject.fitting:
        yield CheckResult(
            "awkward tables", CheckStatus.NOT_CHECKED, "it does not fit tables with classes"
        )
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
                problems.append(f"{name}, {_asked(ipc)}: {type(problem).__name__}: {problem}")
                continue
            problems += [f"{name}: {text}" for text in _misfits(subject, name, release, ipc)]
    yield CheckResult(
        "awkward tables",
        passed_unless(problems),
        "\n".join(problems) or f"{', '.join(AWKWARD)}; 3 and 40 rows per class",
        f"a division by a variance, a count or a class share of zero? See {_SAID}",
    )


def grows_with_epsilon(subject: Subject) -> Iterator[CheckResult]:
    """The headline score does not fall by more than the tolerance, in two sets of seeds."""
    check = "utility does not fall as epsilon grows"
    if not subject.method.uses_budget:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, "it has no budget")
        return
    falls, words = [], []
    for name in subject.fitting:
        scores = {epsilon: _scores(subject, name, epsilon, 0) for epsilon in _EPSILONS}
        known = {epsilon: float(np.mean(values)) for epsilon, values in scores.items() if values}
        if len(known) < 2:
            continue
        words.append(f"{name}: {_in_words(known)}")
        *earlier, last = known
        best = max(earlier, key=lambda epsilon: known[epsilon])
        # Quick hyperparameters leave a generator half trained, whose scores scatter by chance.
        if _worse(scores[best], scores[last]) and _worse(
            *(_scores(subject, name, epsilon, _SEEDS) for epsilon in (best, last))
        ):
            falls.append(name)
    if not words:
        yield CheckResult(check, CheckStatus.NOT_CHECKED, "the headline score has no value here")
        return
    yield CheckResult(
        check,
        passed_unless(falls),
        "\n".join(words),
        "is something fixed that should follow the noise (a step size, a number of rounds), or a "
        "budget split the wrong way round?",
    )


def _worse(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether scores fell by more than the tolerance and all are below all others."""
    if not before or not after:
        return False
    return float(np.mean(after)) < float(np.mean(before)) - _TOLERANCE and max(after) < min(before)


def _in_words(means: Mapping[float, float]) -> str:
    return ", ".join(f"{mean:.3f} at {epsilon:g}" for epsilon, mean in means.items())


def _scores(subject: Subject, name: str, epsilon: float, first_seed: int) -> list[float]:
    values = [
        _score(subject, name, epsilon, seed) for seed in range(first_seed, first_seed + _SEEDS)
    ]
    return [value for value in values if value is not None]


def _score(subject: Subject, name: str, epsilon: float, seed: int) -> float | None:
    run = subject.run(name, epsilon, 25, seed)
    headline = HEADLINES[run.dataset.task.value]
    metric = registry.metric(registry.select_metrics([headline])[0])
    if not isinstance(metric, Metric):
        return None
    try:
        scores = metric.compute(Evaluation(run.dataset, run.release, seed)).scores
    except NotComputable:
        return None
    return next((score.value for score in scores if score.metric == headline), None)
