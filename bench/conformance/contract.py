"""Checks of the contract: source, description, size, schema, determinism, utility by epsilon."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np

from bench.conformance.released import RESULT, released
from bench.conformance.subject import CheckResult, CheckStatus, Subject, passed_unless
from bench.conformance.tables import DIFFICULT, toy_dataset
from bench.engine.code import class_closure
from bench.errors import InputError, NotApplicable, NotComputable
from bench.plugins import registry
from bench.plugins.dataframe import DataFrameMethod
from bench.plugins.method import Method
from bench.plugins.metric import HEADLINES, Evaluation, Metric
from bench.plugins.release import Release

_SAID = "CONTRIBUTING.md, `Rules for a method`"

_GLOBAL_SEEDS = ("seed", "manual_seed", "set_rng_state")
_GLOBAL_OWNERS = ("np.random", "numpy.random", "torch", "torch.random", "torch.cuda", "random")
_LEGACY = "rand randn randint random normal uniform choice permutation shuffle"
"""Names of functions of numpy's global generator."""
_FORBIDDEN_MODULES = {"pickle", "random", "secrets"}
_KERNEL_MODULES = {"bench.privacy.noise"}

_PRIVATE = "private attribute of another object"
_MARK = "# library internals"

_EPSILONS = (0.5, 5.0, 50.0)
_SEEDS = 3
_TOLERANCE = 0.1
"""Smallest difference that counts: scores of small releases of small tables are noisy."""


def source_has_no_bypass(subject: Subject) -> Iterator[CheckResult]:
    """The source uses no private attributes of other objects, no global generator, no pickle.

    All modules of the method are read: those that it imports from `bench.methods`, or from its
    own distribution. A line that needs the internals of a wrapped library is marked by the comment
    `# library internals`, and listed instead of refused.
    """
    try:
        files = _source_files(subject.kind)
    except InputError as problem:
        yield CheckResult("source", CheckStatus.NOT_CHECKED, str(problem))
        return
    problems: list[str] = []
    accepted: list[str] = []
    for file in files:
        source = file.read_text(encoding="utf-8")
        lines = source.splitlines()
        for line, text in suspicious(source):
            marked = (
                _PRIVATE in text and _MARK in lines[line - 1] and not text.startswith("private")
            )
            (accepted if marked else problems).append(f"{file.name}, line {line}: {text}")
    good = [f"no violations in {', '.join(file.name for file in files)}"]
    good += [f"marked `{_MARK}`: {text}" for text in accepted]
    yield CheckResult(
        "source",
        passed_unless(problems),
        "\n".join(problems or good),
        "Read rows, add noise and sample only through `private`; use `rng` for public randomness.",
    )


def _source_files(kind: type[Method]) -> list[Path]:
    """Return the method's own files: its module first, then what it imports, by name."""
    names = sorted(
        (
            name
            for name in class_closure(kind).modules
            if name == kind.__module__
            or name.startswith("bench.methods.")
            or not name.startswith("bench.")
        ),
        key=lambda name: (name != kind.__module__, name),
    )
    origins = [spec.origin for name in names if (spec := importlib.util.find_spec(name))]
    files = [Path(origin) for origin in origins if origin and origin.endswith(".py")]
    # An `__init__.py` that holds a docstring only would clutter the list.
    return [file for file in files if file.name != "__init__.py" or _has_code(file)]


def _has_code(file: Path) -> bool:
    first, *others = ast.parse(file.read_text(encoding="utf-8")).body or [ast.Pass()]
    return bool(others) or not isinstance(first, ast.Expr | ast.Pass)


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
        yield node.lineno, f"{text}: {_PRIVATE}"
    # `torch.Generator().manual_seed(...)` seeds a local generator, as it should be done.
    if node.attr in _GLOBAL_SEEDS and owner in _GLOBAL_OWNERS:
        yield node.lineno, f"{text}: a global seed"
    if owner in ("np.random", "numpy.random") and node.attr in _LEGACY.split():
        yield node.lineno, f"{text}: numpy's global generator"
    if text == "os.urandom":
        yield node.lineno, f"{text}: randomness that cannot be seeded"


def has_a_description(subject: Subject) -> Iterator[CheckResult]:
    """Title, paper and docstring are given; hyperparameters are documented and serialisable."""
    kind = subject.kind
    missing = [name for name in ("title", "paper") if not getattr(kind, name, "")]
    document = getattr(inspect.getmodule(kind), "__doc__", None) or ""
    names: object = kind.tuned_on  # a plugin need not be typed
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        missing.append("`tuned_on` as a tuple of names of datasets")
    if len(document.split()) < 10:
        missing.append("a module docstring with what is computed, paper and equation")
    yield CheckResult(
        "description",
        CheckStatus.WARNING if missing else CheckStatus.PASSED,
        f"without {', '.join(missing)}" if missing else f"{kind.title}",
        "a reader of the leaderboard sees these; write `none (new method)` where there is no paper",
    )
    try:
        json.dumps(subject.method.parameters())
    except TypeError as problem:
        yield CheckResult(
            "hyperparameters",
            CheckStatus.FAILED,
            str(problem),
            "fields must be numbers, texts, booleans or tuples of these: they are stored in keys "
            "and result tables",
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
    """Releases have rows inside the schema, as many of each class as requested."""
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
    if ipc is None and isinstance(subject.method, DataFrameMethod):
        # The rows of a wrapped library are taken as they come: its classes are its own.
        counts, wanted = [sum(counts)], [sum(wanted)]
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
        released(release, dataset)
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
    if different := first.differences(again):
        text = f"two runs with one seed differ in: {', '.join(different)}"
        yield CheckResult(check, CheckStatus.FAILED, text, fix)
    elif subject.method.uses_budget and not {*first.differences(other)} & {*RESULT}:
        yield CheckResult(
            check, CheckStatus.FAILED, "another seed gives the same release: is there noise?", fix
        )
    else:
        yield CheckResult(check, CheckStatus.PASSED)


def survives_difficult_tables(subject: Subject) -> Iterator[CheckResult]:
    """Tiny classes, constant columns, one feature, more rows requested than available: it works."""
    if "table" not in subject.fitting:
        yield CheckResult(
            "difficult tables", CheckStatus.NOT_CHECKED, "it does not fit tables with classes"
        )
        return
    problems = []
    for name in DIFFICULT:
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
        "difficult tables",
        passed_unless(problems),
        "\n".join(problems) or f"{', '.join(DIFFICULT)}; 3 and 40 rows per class",
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
