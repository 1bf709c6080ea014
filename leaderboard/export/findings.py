"""Findings of a published version: Markdown tables that `bench fill` writes into a report.

A finding is described where it stands, in a comment that readers do not see:

    <!-- finding
    results = "../leaderboard/results/2026.11"
    kind = "best"
    -->
    | data | epsilon | ...
    <!-- end of finding -->

`results` is a directory of published results, looked for beside the document. Every difference has
its 95% interval and a p-value that is corrected (Holm) for all tests of its table or, for the best
methods, of all pairs; `ranking.answers` says what these cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from bench.errors import InputError
from bench.leaderboard.charts import gallery
from bench.leaderboard.ranking import answers
from bench.leaderboard.ranking.answers import DATA, Against, Scores
from bench.leaderboard.ranking.rank import (
    CHOSEN_HERE,
    FLOOR,
    REFERENCES,
    headline_metrics,
    is_sound,
)
from bench.leaderboard.ranking.rows import Row, aggregate
from bench.leaderboard.tables import show
from bench.leaderboard.tables.about import About, mark_tuned, read_about
from bench.leaderboard.tables.load import GROUP, Results, load_results
from bench.results.audits import refutations
from bench.results.published import Version, check_published, statuses
from bench.results.reading import read_audits
from bench.results.records import Outcome, Status
from bench.stats.inference import holm

ALPHA: Final = 0.05
_CONDENSATION = "condensation"
"""What the family of a method that condenses says."""


@final
class Material:
    """A published version, loaded as the leaderboard loads it, each part once, for a document."""

    def __init__(self, directory: Path, document: Path) -> None:
        self.directory = directory
        self.document = document
        self.version: Version = check_published(directory)
        loaded = load_results([directory])
        self.about: About = read_about(loaded)
        self.results: Results = mark_tuned(loaded, self.about)
        rows, self.places = aggregate(self.results)
        self.rows: Sequence[Row] = rows

    @cached_property
    def headlines(self) -> Mapping[str, str]:
        """Headline metric by dataset."""
        return headline_metrics(self.results.cells, self.results.scores)

    @cached_property
    def targets(self) -> tuple[float, ...]:
        """Target epsilons, in order."""
        found = {row.epsilons.target for row in self.rows if row.epsilons.target is not None}
        return tuple(sorted(found))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Sizes of releases, in order."""
        found = {row.ipc for row in self.rows if row.epsilons.target is not None}
        return tuple(sorted(found, key=show.ipc_order))

    @cached_property
    def scores(self) -> Mapping[str, Scores]:
        """Utilities of all ranked methods in all of their groups."""
        return answers.utilities(self.results, self.places, self.headlines)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Tasks in the order in which they are told."""
        there = {row.task for row in self.rows}
        return tuple(task for task in DATA if task in there)

    @cached_property
    def audits(self) -> tuple[Outcome, ...]:
        """Finished audits."""
        return tuple(one for one in read_audits(self.directory) if one.audit is not None)

    def datasets(self, task: str) -> tuple[str, ...]:
        """Return the datasets of a task."""
        return tuple(sorted({row.dataset for row in self.rows if row.task == task}))

    def best_methods(self, target: float, size: str = "") -> tuple[answers.Answer, ...]:
        """Return the best methods at an epsilon, of one size or of all."""
        rows, places = self.rows, self.places
        if size:
            rows = [row for row in rows if row.ipc == size or row.epsilons.target is None]
            places = places[places["shown_ipc"] == size]
        return answers.answers(self.results, rows, places, target, ALPHA)

    def chosen(self, label: str, **wanted: Any) -> Scores:
        """Return the utilities of a method in the groups that have these values."""
        found: Scores = {}
        for (dataset, group), seeds in self.scores.get(label, {}).items():
            facts = dict(zip(GROUP, group, strict=True))
            if all(facts[name] == value for name, value in wanted.items()):
                found[dataset, group] = seeds
        return found

    def left_out(self, dataset: str, target: float, size: str) -> tuple[str, ...]:
        """Return the methods without a rank because their defaults were chosen on the dataset."""
        here = (row for row in self.rows if (row.dataset, row.ipc) == (dataset, size))
        left = (row for row in here if row.place.reason == CHOSEN_HERE)
        return tuple(sorted({row.label for row in left if row.epsilons.target == target}))


def _on(scores: Scores, datasets: Sequence[str]) -> Scores:
    return {place: seeds for place, seeds in scores.items() if place[0] in datasets}


@final
@dataclass(frozen=True)
class _Line:
    """A row of a table whose test is corrected together with the others."""

    cells: tuple[str, ...]
    """What stands before the difference."""
    against: Against | None
    after: tuple[str, ...] = ()


def _corrected(lines: Sequence[_Line]) -> list[_Line]:
    tested = [one.against.p for one in lines if one.against is not None]
    corrected = iter(holm(tested))
    return [
        one
        if one.against is None
        else replace(one, against=replace(one.against, p_holm=float(next(corrected))))
        for one in lines
    ]


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "No results of this version say anything about it.\n"
    body = ["| " + " | ".join(line) + " |\n" for line in lines]
    return "| " + " | ".join(heads) + " |\n" + "|" + "---|" * len(heads) + "\n" + "".join(body)


def _gap(one: Against | None) -> str:
    if one is None:
        return show.ABSENT
    return f"{one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"


def _p(one: Against | None) -> str:
    return show.ABSENT if one is None else show.p_value(one.p_holm)


def _common(one: Against | None) -> str:
    return show.ABSENT if one is None else str(one.datasets)


_NAMED: Final = 3
"""Most methods that a cell of a table lists by name."""


def _names(labels: Sequence[str]) -> str:
    if len(labels) > _NAMED:
        return str(len(labels))
    return ", ".join(f"`{label}`" for label in labels) or "none"


def _seeds(one: Against | None) -> str:
    if one is None:
        return show.ABSENT
    return "1 (test rows only)" if one.one_seed else str(one.seeds)


# Findings -----------------------------------------------------------------------------------------


def _version(found: Material) -> str:
    cells = found.results.cells
    counts = ", ".join(f"{count:,} {name}" for name, count in statuses(cells).items())
    seeds = ", ".join(map(str, sorted(cells["seed"].unique())))
    listed = ", ".join(f"{target:g}" for target in found.targets)
    sizes = ", ".join(show.ipcs((size,)) for size in found.sizes)
    return (
        f"Version {found.version.version}, updated {found.version.updated}: {len(cells):,} cells "
        f"({counts}) and {len(found.audits):,} audits of {cells['method'].nunique()} methods on "
        f"{cells['shown_dataset'].nunique()} datasets, epsilon {listed}, {sizes}, seeds {seeds}; "
        f"{found.version.core_hours:.1f} core-hours.\n"
    )


def _best(found: Material) -> str:
    """The best sound method of every task and epsilon, against the next and against real rows."""
    lines = []
    for task in found.tasks:
        for target in found.targets:
            for answer in found.best_methods(target):
                if answer.task != task or answer.best is None:
                    continue
                rival = answer.next
                best = found.chosen(answer.best.label, eps_target=target)
                best = {
                    place: seeds for place, seeds in best.items() if place[0] in answer.datasets
                }
                real = answers.of_reals(found.results, found.headlines, best)
                loss = answers.versus(best, real, "real", ALPHA)
                lines.append(
                    (
                        answer.what,
                        f"{target:g}",
                        f"`{answer.best.label}`",
                        f"{answer.best.datasets} of {len(answer.datasets)}",
                        show.share(answer.best.of_real),
                        _gap(loss),
                        _common(loss),
                        show.ABSENT if rival is None else f"`{rival.label}`",
                        _gap(rival),
                        _common(rival),
                        _p(rival),
                        str(len(answer.tied)),
                        _seeds(rival),
                    )
                )
    heads = (
        *("data", "ε", "best", "datasets", "of real", "difference to real rows"),
        *("datasets with real rows", "next", "difference to the next", "datasets in common"),
        *("corrected p", "not distinguishable", "seeds"),
    )
    return _table(heads, lines)


def _sizes(found: Material) -> str:
    """The best sound method of every task and size at epsilon 1."""
    lines = []
    for task in found.tasks:
        for size in found.sizes:
            for answer in found.best_methods(answers.HEADLINE_TARGET, size):
                if answer.task != task or answer.best is None:
                    continue
                rival, best = answer.next, answer.best.label
                own = answer.ranked_on
                lines.append(
                    (
                        answer.what,
                        show.ipcs((size,)),
                        f"`{best}`",
                        f"{len(own)} of {len(answer.datasets)}: {', '.join(own)}",
                        show.share(answer.best.of_real),
                        str(1 + len(answer.against)),
                        _names(answer.tuned),
                        show.ABSENT if rival is None else f"`{rival.label}`",
                        _gap(rival),
                        _common(rival),
                        _p(rival),
                        _seeds(rival),
                    )
                )
    heads = (
        *("data", "size", "best", "datasets of the best", "of real", "methods compared"),
        *("left out", "next", "difference to the next", "datasets in common", "corrected p"),
        "seeds",
    )
    return _table(heads, lines)


def _families(found: Material) -> str:
    """The best method that condenses against the best that synthesises, by size, at epsilon 1."""
    condense = {
        row.label
        for row in found.rows
        if (card := found.about.methods.get(row.method)) is not None
        and _CONDENSATION in card.family.lower()
    }
    lines = []
    for task in found.tasks:
        for size in found.sizes:
            sides = [_ranked(found, task, size, condense, kind) for kind in (True, False)]
            if not all(sides):
                continue
            one, two = sides[0][0], sides[1][0]
            wanted = {"eps_target": answers.HEADLINE_TARGET, "shown_ipc": size}
            first, second = (found.chosen(label, **wanted) for label in (one, two))
            names = found.datasets(task)
            first, second = _on(first, names), _on(second, names)
            against = answers.versus(first, second, two, ALPHA)
            cells = (DATA[task], show.ipcs((size,)), f"`{one}`", f"`{two}`")
            lines.append(_Line(cells, against))
    heads = (
        *("data", "size", "best condensation", "best synthesis"),
        *("difference (condensation - synthesis)", "datasets in common", "corrected p", "seeds"),
    )
    facts = (_gap, _common, _p, _seeds)
    return _table(
        heads,
        [(*one.cells, *(fact(one.against) for fact in facts)) for one in _corrected(lines)],
    )


def _ranked(
    found: Material, task: str, size: str, condense: set[str], condensing: bool
) -> list[str]:
    """Return the methods of one side, best first."""
    for answer in found.best_methods(answers.HEADLINE_TARGET, size):
        if answer.task == task and answer.best is not None:
            order = [answer.best.label, *(one.label for one in answer.against)]
            return [
                label
                for label in order
                if (label in condense) is condensing and label not in REFERENCES
            ]
    return []


def _floor(found: Material) -> str:
    """On each dataset and size the best sound method against the floor, at epsilon 1."""
    floors = [name for name, kind in REFERENCES.items() if kind == FLOOR]
    target = answers.HEADLINE_TARGET
    lines = []
    for task in found.tasks:
        for dataset in found.datasets(task):
            for size in found.sizes:
                wanted = {"eps_target": target, "shown_dataset": dataset, "shown_ipc": size}
                floor = found.chosen(floors[0], **wanted)
                if not floor:
                    continue
                rivals = {}
                for label in found.scores.keys() - REFERENCES.keys():
                    own = found.chosen(label, **wanted)
                    if (one := answers.versus(own, floor, label, ALPHA)) is not None:
                        rivals[label] = one
                if not rivals:
                    continue
                best = min(rivals, key=lambda label: (-rivals[label].difference, label))
                # The best was chosen among so many: its p-value pays for that before those of the
                # rows do.
                paid = min(1.0, len(rivals) * rivals[best].p)
                left = found.left_out(dataset, target, size)
                place = (DATA[task], dataset, show.ipcs((size,)))
                cells = (*place, str(len(rivals)), _names(left), f"`{best}`")
                lines.append(_Line(cells, replace(rivals[best], p=paid)))
    heads = (
        *("data", "dataset", "size", "methods compared", "left out", "best"),
        *("difference to the floor", "corrected p", "beats the floor"),
    )
    facts = (_gap, _p, _beats)
    return _table(
        heads,
        [(*one.cells, *(fact(one.against) for fact in facts)) for one in _corrected(lines)],
    )


def _beats(one: Against | None) -> str:
    if one is None or not one.distinguishable(ALPHA):
        return "not shown"
    return "yes" if one.difference > 0 else "no: worse"


def _verdicts(found: Material) -> str:
    """How many cells of each method have which verdict."""
    cells = found.results.cells
    finished = cells[cells["verdict"] != ""]
    kinds = sorted(finished["verdict"].unique(), key=lambda text: (not is_sound(text), text))
    lines = []
    for label, part in finished.groupby("shown_label"):
        counts = part["verdict"].value_counts()
        reason = str(part["verdict_reason"].iloc[0])
        lines.append((f"`{label}`", *(str(counts.get(kind, 0)) for kind in kinds), _cut(reason)))
    return _table(("method", *kinds, "reason (of one cell)"), lines)


def _cut(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 120 else f"{text[:117]}..."


def _audits(found: Material) -> str:
    """What attacks have shown of each method: the largest lower bound, beside what is proven."""
    decided = refutations(found.audits, ALPHA) if found.audits else {}
    lines = []
    by_method: dict[str, list[Outcome]] = {}
    for one in found.audits:
        by_method.setdefault(f"{one.row.label}|{one.row.attack}", []).append(one)
    for name, members in sorted(by_method.items()):
        label, attack = name.split("|")
        top = max(members, key=lambda one: one.row.eps_audited or 0.0)
        refuted = [
            one for one in members if decided[one.row.key].claim or decided[one.row.key].proof
        ]
        detectable = max(one.audit.eps_detectable for one in members if one.audit is not None)
        lines.append(
            (
                f"`{label}`",
                attack,
                str(len(members)),
                show.epsilon(top.row.eps_proven),
                f"≥ {top.row.eps_audited or 0.0:.3g}",
                show.epsilon(detectable),
                f"{len(refuted)} of {len(members)}",
            )
        )
    heads = (
        *("method", "attack", "audits", "proven", "audited (95% lower bound)"),
        *("maximum detectable", "refuted"),
    )
    return _table(heads, lines)


def _cost(found: Material) -> str:
    """Processor time and failures of each method."""
    cells, timings = found.results.cells, found.results.timings
    fits = timings[(timings["phase"] == "fit") & (timings["metric"] == "")]
    seconds = fits.set_index("key")["processor_seconds"]
    lines = []
    for label, part in cells.groupby("shown_label"):
        own = seconds.reindex(part["key"]).dropna()
        every = timings[timings["key"].isin(set(part["key"])) & (timings["metric"] == "")]
        failed = ~part["status"].isin([Status.OK.value, Status.SKIPPED.value])
        tried = int((part["status"] != Status.SKIPPED.value).sum())
        quartiles = [float(own.quantile(at)) for at in (0.25, 0.5, 0.75)] if len(own) else []
        spread = (
            f"{quartiles[1]:.1f} [{quartiles[0]:.1f}, {quartiles[2]:.1f}]"
            if quartiles
            else show.ABSENT
        )
        memory = part["peak_memory_mb"].astype(float).max()
        lines.append(
            (
                f"`{label}`",
                spread,
                show.ABSENT if math.isnan(memory) else f"{memory:,.0f}",
                f"{every['processor_seconds'].sum() / 3600:.2f}",
                f"{int(failed.sum())} of {tried}",
            )
        )
    heads = (
        *("method", "fit, processor seconds: median [quartiles] over cells", "peak MB"),
        *("core-hours in all", "failed cells"),
    )
    return _table(heads, lines)


FIGURES: Final = "findings"
"""Folder of the figures, beside the document."""


def _figures(found: Material) -> str:
    """Figures that `bench plot` has drawn, as SVG with a PDF for papers.

    A chart that the version has no results for, such as one over sizes with one size, has no file.
    """
    drawn = [
        (kind, f"{title[0].upper()}{title[1:]}")
        for kind, (title, _) in gallery.KINDS.items()
        if (found.document.parent / FIGURES / f"{kind}.svg").is_file()
    ]
    return (
        "\n".join(
            f"![{title}]({FIGURES}/{kind}.svg)\n\n{title}, version {found.version.version} "
            f"([PDF]({FIGURES}/{kind}.pdf)).\n"
            for kind, title in drawn
        )
        or f"No figures are drawn yet: `bench plot published all --public -o {FIGURES}`.\n"
    )


KINDS: Final[Mapping[str, Callable[[Material], str]]] = {
    "version": _version,
    "best": _best,
    "sizes": _sizes,
    "families": _families,
    "floor": _floor,
    "verdicts": _verdicts,
    "audits": _audits,
    "cost": _cost,
    "figures": _figures,
}


def made(
    kind: str, directory: Path, document: Path, place: str, known: dict[Path, Material]
) -> str:
    """Return the Markdown of a finding in a document; `known` keeps what was loaded."""
    if kind not in KINDS:
        raise InputError(f"{place}: kind {kind!r} is not one of {', '.join(KINDS)}")
    if not (directory / "run.json").is_file():
        return f"There are no results of version {directory.name} yet.\n"
    if directory not in known:
        known[directory] = Material(directory, document)
    return KINDS[kind](known[directory])
