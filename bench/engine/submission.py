"""Submissions of methods to the published results: written by their authors, checked by anybody.

    submission.json    who, which code under which licence, and the SHA-256 of every other file
    environment.txt    `name==version` of everything that was installed
    results/           the cells in the form of published results, with their ledgers

`write_submission` refuses what is incomplete and names all of it at once. `check_submission` is
what the CI of a pull request runs: hashes, ledgers, keys, and a sample of cells computed again.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.engine import keys
from bench.engine.options import hash_of_lines, installed
from bench.engine.publish import MOST_FAILING, publishable, slice_of
from bench.engine.verify import Verification, other_versions, verify_published
from bench.errors import BenchError, InputError, StoreError, UnknownNameError, shortened
from bench.leaderboard.tables.published import versions
from bench.plugins import registry
from bench.plugins.description import MethodDescription, describe_dataset, describe_method
from bench.plugins.method import UNKNOWN
from bench.plugins.metric import HEADLINES
from bench.results import published
from bench.results.integrity import Ledgers, Stated, check_release
from bench.results.opening import names_in, read_bytes, read_object, read_text, survey
from bench.results.published import Compact, Version
from bench.results.reading import check_run
from bench.results.records import CellRow, Status, stored_object
from bench.results.verdicts import Verdict
from bench.results.writing import FOR_ALL, write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd

ABOUT = "submission.json"
ENVIRONMENT = "environment.txt"
RESULTS = "results"
FORMAT_VERSION = 1

FEWEST_SEEDS = 3
"""Seeds of every row: fewer say nothing about the randomness of a method."""
NEEDED_TARGET = 1.0
"""The target epsilon that every submission has: the first page asks about it."""

_NO_AUDIT = "it has no audit: the maintainers attack the method before it is published"
_NAMED = 3

_CODE = re.compile(r"https://[^\s@]+@[0-9a-f]{7,40}")
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*(?: (?:OR|AND|WITH) [A-Za-z0-9][A-Za-z0-9.+-]*)*")


@final
@dataclass(frozen=True)
class About:
    """What an author says about a submission."""

    method: str
    authors: tuple[str, ...]
    licence: str
    """SPDX expression of the licence of the method's code."""
    code: str
    """Address of the repository, `@`, and the commit."""
    explanation: str = ""
    """Why cells have failed."""
    source_hash: str = ""
    """Hash of what the method's code does, by which CI knows that it has the same code."""
    paper: str = ""
    tuned_on: tuple[str, ...] = ()
    created: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every other file."""
    format_version: int = FORMAT_VERSION


@final
@dataclass(frozen=True)
class Written:
    """A submission that was written."""

    directory: Path
    cells: int
    remarks: tuple[str, ...]


def write_submission(run: Path, output: Path, about: About) -> Written:
    """Write the submission of one method of a run directory; refuse what is incomplete."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise StoreError(f"{output} is there already; give -o the name of a new folder")
    mine, problems = incomplete(run, about)
    if problems:
        raise InputError(f"{run} is not complete enough to be submitted: {'; '.join(problems)}")
    manifest, lock = check_run(run), installed()
    card = describe_method(registry.method_class(about.method))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    joined = published.join(None, mine)
    version = Version(f"submission of {about.method}", today, today)
    version = Version(version.version, today, today, (slice_of(run, manifest, joined, today),))
    published.write(output / RESULTS, joined.results, version, "")
    with writing(output):
        lines = "".join(f"{line}\n" for line in lock)
        write_atomically(output / ENVIRONMENT, lines.encode(), FOR_ALL)
        told = About(
            method=about.method,
            authors=about.authors,
            licence=about.licence,
            code=about.code,
            explanation=about.explanation,
            source_hash=keys.method_source_hash(about.method),
            paper=card.paper,
            tuned_on=card.tuned_on,
            created=today,
            files=_hashes(output),
        )
        text = json.dumps(asdict(told), indent=1) + "\n"
        write_atomically(output / ABOUT, text.encode(), FOR_ALL)
    return Written(output, len(joined.results.cells), (_NO_AUDIT,))


def incomplete(run: Path, about: About) -> tuple[Compact, list[str]]:
    """Return the cells of a method, and in sentences all that a submission of them lacks.

    Audits of the run are not among them: those of the maintainers are published.
    """
    manifest = check_run(run)
    if published.version_of(run) is not None:
        raise InputError(f"{run} holds published results; name a run directory")
    everything = published.compact(run)
    cells = everything.cells[everything.cells["attack"] == ""]
    if about.method not in set(cells["method"]):
        known = ", ".join(sorted(cells["method"].unique()))
        raise InputError(f"{run} has no cell of a method {shortened(about.method)}; it has {known}")
    mine = everything.only(list(cells.loc[cells["method"] == about.method, "key"]))
    lock = installed()
    return mine, [*_incomplete_about(about), *_incomplete_run(run, mine, manifest, lock, about)]


def _incomplete_about(about: About) -> Iterator[str]:
    """Return, in sentences, what an author has not said."""
    if not about.authors or not all(name.strip() for name in about.authors):
        yield "no authors: --authors 'A. Author, B. Author'"
    if not about.licence:
        yield "no licence of the method's code: --licence Apache-2.0, or another SPDX expression"
    elif not _LICENCE.fullmatch(about.licence):
        yield f"licence {shortened(about.licence)} is no SPDX expression, such as Apache-2.0"
    if not about.code:
        yield "no reference to the method's code: --code https://host/repository@commit"
    elif not _CODE.fullmatch(about.code):
        yield (
            f"code {shortened(about.code)}: expected https://host/repository@commit, with a commit "
            "of at least 7 hexadecimal digits"
        )


def _incomplete_run(
    run: Path, mine: Compact, manifest: Mapping[str, Any], lock: Sequence[str], about: About
) -> Iterator[str]:
    """Return, in sentences, what the results lack."""
    good, why = publishable(mine, manifest, allow_dirty=False)
    yield from why
    if about.method not in registry.method_names():
        yield f"method {about.method} is not installed, so that its code cannot be hashed"
    else:
        yield from _incomplete_card(describe_method(registry.method_class(about.method)))
    recorded = str(manifest.get("environment_hash", ""))
    if recorded != hash_of_lines(lock):
        yield (
            "the installed packages are not those of the run: submit from the environment in which "
            "`bench run` was last called"
        )
    cells = good.cells[good.cells["attack"] == ""]
    if cells.empty:
        return
    yield from _failing(cells, about)
    yield from _missing_seeds(cells)
    yield from _secure_noise(cells)
    budgeted = cells["eps_target"].notna()
    if budgeted.any() and not (cells["eps_target"] == NEEDED_TARGET).any():
        yield f"no cell at epsilon {NEEDED_TARGET:g}, which every submission needs"
    headline = good.scores[good.scores["metric"].isin(set(HEADLINES.values()))]
    scored = set(headline.loc[headline["value"].notna(), "key"])
    lacking = cells[(cells["status"] == Status.OK.value) & ~cells["key"].isin(scored)]
    if len(lacking):
        yield (
            f"{len(lacking)} cells have no headline score ({', '.join(HEADLINES.values())}): run "
            "`bench score` on them"
        )
    yield from _contradicting(run, mine)


def _incomplete_card(card: MethodDescription) -> Iterator[str]:
    if not card.paper:
        yield f"method {card.name} names no paper: set `paper`, to `none: ours` if there is none"
    if tuple(card.tuned_on) == (UNKNOWN,):
        yield (
            f"method {card.name} does not say on which datasets its defaults were chosen: set "
            "`tuned_on`, to () if on none"
        )


def _failing(cells: pd.DataFrame, about: About) -> Iterator[str]:
    failed = ~cells["status"].isin([Status.OK.value, Status.SKIPPED.value])
    tried = int((cells["status"] != Status.SKIPPED.value).sum())
    count = int(failed.sum())
    if tried and count / tried > MOST_FAILING and not about.explanation.strip():
        reason = str(cells.loc[failed, "reason"].iloc[0])[:100]
        yield (
            f"{count} of {tried} cells have failed (such as: {reason}), and nothing explains it: "
            "--explain 'why'"
        )


def _missing_seeds(cells: pd.DataFrame) -> Iterator[str]:
    row = ["label", "parameters", "dataset", "dataset_parameters", "ipc", "full_size", "eps_target"]
    tried = cells[cells["status"] != Status.SKIPPED.value]
    seeds = tried.groupby(row, dropna=False)["seed"].nunique()
    few = seeds[seeds < FEWEST_SEEDS]
    if len(few):
        label, _, dataset, _, _, _, target = few.index[0]
        spent = "" if target != target else f" at epsilon {target:g}"
        yield (
            f"{len(few)} rows have fewer than {FEWEST_SEEDS} seeds (such as {label} on "
            f"{dataset}{spent}: {few.iloc[0]})"
        )


def _secure_noise(cells: pd.DataFrame) -> Iterator[str]:
    """Return that cells have noise that nobody can draw again."""
    seeded = cells["study_only"] | cells["eps_target"].isna()
    count = int((~seeded & (cells["status"] == Status.OK.value)).sum())
    if count:
        yield (
            f"{count} cells have secure noise, so that nobody can compute them again: run without "
            "--secure-noise"
        )


def _contradicting(directory: Path, results: Compact) -> Iterator[str]:
    """Return what of the verdicts does not follow from the ledgers, a few by name."""
    ledgers = Ledgers()
    found = []
    rows = {row["key"]: row for row in results.cells.to_dict("records")}
    for row in _rows(directory):
        if row.key not in rows or not row.verdict or row.attack:
            continue
        checked = check_release(directory, Stated.of(row), ledgers)
        if checked.verdict != row.verdict or row.verdict == Verdict.TAMPERED.value:
            found.append(f"{row.cell.describe()}: {checked.reason}")
    yield from found[:_NAMED]
    if len(found) > _NAMED:
        yield f"{len(found) - _NAMED} more cells whose verdict does not follow from their ledger"


def _rows(directory: Path) -> Iterator[Any]:
    from bench.results.reading import read_tables

    columns = [item.name for item in fields(CellRow)]
    cells = read_tables(directory).cells[columns]
    plain = cells.astype(object).where(cells.notna(), None)
    for line in plain.to_dict("records"):
        yield CellRow(**{str(name): value for name, value in line.items()})


def _hashes(directory: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((directory / name).read_bytes()).hexdigest()
        for name in sorted(_files(directory))
        if name != ABOUT
    }


def _files(directory: Path) -> list[str]:
    found = [path for path in directory.rglob("*") if path.is_file() and path.parent.exists()]
    return [path.relative_to(directory).as_posix() for path in found]


# Checking -----------------------------------------------------------------------------------------


@final
@dataclass
class Report:
    """What the check of a submission has found."""

    directory: Path
    about: About | None = None
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    verification: Verification | None = None

    @property
    def good(self) -> bool:
        """True where a maintainer may look at it."""
        return not self.problems and (self.verification is None or self.verification.good)


def check_submission(
    directory: Path,
    sample: int = 3,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Check hashes, ledgers, keys and policy; compute `sample` cells again."""
    survey(directory)
    report = Report(directory)
    try:
        report.about = _read_about(directory)
    except StoreError as problem:
        report.problems.append(str(problem))
        return report
    about = report.about
    report.problems += _changed(directory, about)
    report.problems += _incomplete_about(about)
    if report.problems:
        return report  # what is not what its author has written need not be read
    results = directory / RESULTS
    try:
        published.check_published(results)
        found = published.compact(results)
    except BenchError as problem:
        report.problems.append(str(problem))
        return report
    attacked = found.cells["attack"] != ""
    others = sorted(set(found.cells["method"]) - {about.method})
    if others:
        report.problems.append(f"it holds cells of other methods: {', '.join(others)}")
    if attacked.any():
        report.problems.append(
            f"it holds audits ({int(attacked.sum())}): only those that the maintainers run are "
            "published, since nothing in a submission shows that an audit was run"
        )
    cells = found.cells[~attacked]
    report.problems += [*_failing(cells, about), *_missing_seeds(cells)]
    report.problems += _other_code(about)
    if report.problems:
        return report
    report.remarks.append(_NO_AUDIT)
    _, why = publishable(found, {}, allow_dirty=False)
    report.problems += [*why, *_closed(found.cells), *_secure_noise(cells)]
    report.problems += _other_libraries(list(published.rows_of(results).values()))
    report.remarks += _taken(about)
    report.verification = verify_published(results, sample, seed, "", say)
    for lost in report.verification.not_verifiable:
        if lost.by_row:
            report.problems.append(f"{lost.cell} ({lost.key}) cannot be checked: {lost.reason}")
    if sample and not report.verification.recomputed:
        report.problems.append(
            "no cell could be computed again here; the reasons are listed as not verifiable"
        )
    return report


def _read_about(directory: Path) -> About:
    document = read_object(directory, ABOUT)
    if document is None:
        raise StoreError(f"{directory} holds no {ABOUT}; `bench submit` writes a submission")
    try:
        if document["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format version {document['format_version']!r}")
        texts = ("method", "licence", "code", "explanation", "source_hash", "paper", "created")
        lists = ("authors", "tuned_on")
        given: dict[str, Any] = {name: document[name] for name in texts}
        given |= {name: tuple(document[name]) for name in lists}
        if not all(isinstance(given[name], str) for name in texts) or not all(
            isinstance(item, str) for name in lists for item in given[name]
        ):
            raise ValueError("a value that is no text")
        files = document["files"]
        if not isinstance(files, dict) or not all(isinstance(one, str) for one in files.values()):
            raise ValueError("files are no object of digests")
        return About(**given, files=files)
    except (KeyError, TypeError, ValueError) as problem:
        raise StoreError(
            f"{directory / ABOUT}: is not what `bench submit` writes ({shortened(str(problem))})"
        ) from None


def _changed(directory: Path, about: About) -> Iterator[str]:
    """Return files that are missing, changed, or more than `submission.json` names."""
    there = set(_files(directory)) - {ABOUT}
    allowed = {ENVIRONMENT, *(f"{RESULTS}/{name}" for name in published.FILES)}
    for name in sorted(there - set(about.files)):
        yield f"{name} is not named in {ABOUT}"
    for name in sorted(set(about.files) | there):
        if name not in allowed:
            yield f"{shortened(name)} has no place in a submission"
            continue
        content = read_bytes(directory, *name.split("/"))
        if content is None:
            yield f"{name} is missing"
        elif name in about.files and hashlib.sha256(content).hexdigest() != about.files[name]:
            yield f"{name} is not the file whose digest is in {ABOUT}"
    lock = read_text(directory, ENVIRONMENT)
    slices = _slices(directory)
    if lock is not None and slices and slices[0] != hash_of_lines(lock.splitlines()):
        yield f"{ENVIRONMENT} is not the environment of the run"


def _slices(directory: Path) -> list[str]:
    if RESULTS not in names_in(directory):
        return []
    try:
        version = published.version_of(directory / RESULTS)
    except BenchError:
        return []  # said where the results are read
    return [] if version is None else [one.environment_hash for one in version.slices]


def _other_code(about: About) -> Iterator[str]:
    """Return why the method that is installed here is not the submitted one."""
    try:
        registry.method_class(about.method)
    except UnknownNameError:
        yield (
            f"method {about.method} is not installed: the pull request adds it to methods/, or "
            f"install {about.code}"
        )
        return
    if keys.method_source_hash(about.method) != about.source_hash:
        yield (
            f"the installed code of method {about.method} is not the submitted one: check out "
            f"{about.code}, or submit again after the last change"
        )


def _closed(cells: pd.DataFrame) -> Iterator[str]:
    """Return datasets that their installed plugins do not declare open, as `about.json` may."""
    for name, text in set(zip(cells["dataset_name"], cells["dataset_parameters"], strict=True)):
        parameters = stored_object("dataset_parameters", text)
        try:
            described = describe_dataset(registry.build_source(name, parameters), parameters)
        except BenchError as problem:
            yield f"dataset {shortened(name)}: {problem}"
            continue
        if not described.open:
            yield f"dataset {name} is not open to everybody: results on it are not published"


def _other_libraries(rows: Sequence[CellRow]) -> Iterator[str]:
    """Return cells that do not say to be computed with the libraries that are installed here.

    The key of such a cell is not followed from its row, and its scores may move.
    """
    found: dict[str, list[CellRow]] = {}
    needed: dict[str, set[str]] = {}
    for row in rows:
        if row.status != Status.OK.value:
            continue
        if row.method not in needed:
            needed[row.method] = set(keys.method_libraries(row.method))
        silent = sorted(needed[row.method] - set(stored_object("versions", row.versions)))
        if others := [*other_versions(row), *(f"{name} of no version" for name in silent)]:
            found.setdefault(", ".join(others), []).append(row)
    for told, group in list(found.items())[:_NAMED]:
        yield (
            f"{len(group)} cells (such as {group[0].cell.describe()}, {group[0].key}) cannot be "
            f"compared strictly, since they were computed with other versions than are installed "
            f"here ({shortened(told)}): check them in the environment of {ENVIRONMENT}"
        )
    if len(found) > _NAMED:
        count = sum(map(len, list(found.values())[_NAMED:]))
        yield f"{count} more cells that were computed with other versions"


def _taken(about: About) -> Iterator[str]:
    """Return that the name is one of a published method of other code."""
    there = versions()
    if not there:
        return
    cells = published.compact(there[-1]).cells
    known = set(cells.loc[cells["method"] == about.method, "source_hash"]) - {""}
    if known and known != {about.source_hash}:
        yield (
            f"version {there[-1].name} has a method {about.method} of other code: see who may use "
            "its name in docs/submitting.md"
        )


def to_text(report: Report) -> str:
    """Return text for a terminal, and for the log of CI."""
    from bench.engine.verify import to_text as verified

    lines = []
    if report.about is not None:
        about = report.about
        lines.append(
            f"submission of {about.method} by {', '.join(about.authors)}, {about.licence}, "
            f"{about.code}"
        )
    lines += [f"problem: {text}" for text in report.problems]
    lines += [f"remark: {text}" for text in report.remarks]
    if report.verification is not None:
        lines.append(verified(report.verification))
    lines.append("may be reviewed" if report.good else "refused")
    return "\n".join(lines)
