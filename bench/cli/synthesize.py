"""`bench synthesize` and `bench export`: a private table to give away, as a file."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click

from bench.cli import options as shared
from bench.cli.data import new_table, table_options
from bench.errors import one_line

if TYPE_CHECKING:
    from bench.data.dataset import Declaration
    from bench.engine.release import ReleaseOrder
    from bench.plugins.user_tables import NewTable, TableProposal
    from bench.results.records import CellRow
    from bench.results.spending import HeldSpending, SpendingLedger

_MUCH = 0.05
"""Noise on a count, as a share of the smallest class, from which a person is warned."""
_WEAK = 20.0
"""Epsilon from which the promise is empty: odds may grow by a factor of 500 million."""
_LISTED = 6
"""Columns that a refusal lists."""


@click.command()
@click.argument("file", type=shared.PATH)
@table_options
@click.option("--name", help="Name under which the table is kept [default: from the file name].")
@click.option("--eps", "epsilon", required=True, type=shared.POSITIVE, help="Epsilon to spend.")
@click.option(
    "--delta",
    type=shared.FiniteRange(0, 1, min_open=True, max_open=True),
    help="Delta [default: min(1e-5, 1/(10 n)) for n rows].",
)
@click.option(
    "-o", "--output", required=True, type=shared.PATH, help="File to write: .csv or .parquet."
)
@click.option(
    "--rows", type=click.IntRange(min=1), help="Rows to release [default: as many as FILE has]."
)
@click.option("--method", help="Method [default: chosen for the table, with the reason].")
@shared.parameters
@click.option(
    "--private-counts",
    is_flag=True,
    help="Spend part of epsilon on the number of rows of each class instead of treating it as "
    "public.",
)
@click.option(
    "--budget",
    type=shared.POSITIVE,
    help="Largest total epsilon of all releases of this table; recorded for later ones.",
)
@click.option(
    "--ledger", type=shared.PATH, help="Spending ledger [default: FILE.spending.json beside it]."
)
@click.option("--dry-run", is_flag=True, help="Say what would be spent; write and spend nothing.")
@shared.data_dir
def synthesize(file: Path, output: Path, dry_run: bool, **options: Any) -> None:
    """Make a differentially private synthetic table from your own, to give away.

    Uses all rows, and noise of the operating system. Writes the table with the columns, order and
    types of FILE, its ledger and a dossier. This spends privacy: it is charged to the spending
    ledger beside FILE before a row is used, and every further release of the table adds up there.
    """
    from bench.engine.export import check_output
    from bench.results.spending import held, read_spending, spending_file

    places = _Places(output)
    check_output(output)
    places.check()
    names = ("target", "time", "event", "patient", "separator", "keep", "drop", "dictionary")
    request = new_table(file, options["name"], **{name: options[name] for name in names})
    if options["name"] is None:
        request = _renamed(request)
    path = options["ledger"] or spending_file(file)
    steps = _Steps()
    with steps.doing(f"reading {file}"):
        table = _Table.of(request)
    for remark in table.remarks:
        shared.echo_error(one_line(remark))
    table.refuse_unless_public(places.dictionary, dry_run)
    order, why = _order(table, options)
    if dry_run:
        known = _limited(read_spending(path, file.name), options["budget"])
        known.planned(order.budget, table.declaration.unit, order.method.label, output.name)
        _say_plan(table.declaration, order, why, known, path)
        click.echo("dry run: nothing was spent and nothing was written")
        return
    with held(path, file.name) as spending:
        if options["budget"] is not None:
            spending.write(_limited(spending.known, options["budget"]))
        _say_plan(table.declaration, order, why, spending.known, path)
        _release(table, order, spending, places, steps)


@click.command()
@click.argument("directory", type=shared.PATH)
@click.argument("cell")
@click.option(
    "-o", "--output", required=True, type=shared.PATH, help="File to write: .csv or .parquet."
)
@shared.data_dir
def export(directory: Path, cell: str, output: Path) -> None:
    """Write the rows of one release of a run directory as CSV or Parquet.

    Columns have the order and types of the original. Rows whose privacy is not proven are refused.
    CELL is a key, the beginning of one, or method/dataset/epsilon/ipc/seed, as for `bench dossier`.
    """
    from bench.engine.export import export_release

    written = export_release(directory, cell, output)
    for warning in written.warnings:
        shared.echo_error(f"warning: {warning}")
    click.echo(
        f"wrote {written.path}: {written.rows:,} rows, {shared.counted(written.columns, 'column')}"
    )


# The table ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Table:
    """The user's table: added before, or proposed and not written yet."""

    request: NewTable
    declaration: Declaration
    not_public: tuple[str, ...]
    """Columns whose bounds or categories nobody stands for."""
    remarks: tuple[str, ...] = ()
    proposal: TableProposal | None = None

    @classmethod
    def of(cls, request: NewTable) -> _Table:
        """Find the table of the file, or propose one."""
        from bench.plugins import registry
        from bench.plugins.user_tables import check_same, propose_table, table_of_file

        known = table_of_file(request.file)
        if known is None:
            proposal = propose_table(request, registry.dataset_names())
            declaration, not_public = proposal.declaration, proposal.not_public
            return cls(request, declaration, not_public, proposal.remarks, proposal)
        check_same(known, request)
        declaration, recorded = known.declare(), known.sources()
        not_public = tuple(one.name for one in declaration.schema if not recorded.of(one).public)
        request = dataclasses.replace(request, name=known.name)
        return cls(request, declaration, not_public)

    def refuse_unless_public(self, dictionary: Path, dry_run: bool) -> None:
        """Refuse where bounds come from the rows; leave a dictionary to correct, and say how."""
        from bench.data.provenance import SchemaSources
        from bench.errors import InputError
        from bench.plugins.user_tables import own_table, write_dictionary

        if not self.not_public:
            return
        count = shared.counted(len(self.not_public), "column")
        listed = ", ".join(self.not_public[:_LISTED])
        listed += ", ..." if len(self.not_public) > _LISTED else ""
        problem = (
            f"no guarantee would hold: bounds and categories of {count} would come from the rows "
            f"({listed}). Nothing was spent."
        )
        name = self.request.name
        if self.proposal is None and self.request.dictionary.file:
            raise InputError(
                f"{problem} A dictionary is read when a table is added, and this one was added "
                f"before, as {name!r}. Remove {own_table(name).toml} to read "
                f"{self.request.dictionary.file} anew"
            )
        if self.proposal is None:
            folder = shared.data_folder_given()
            raise InputError(
                f"{problem} Check them with `bench data confirm {name}{folder}`, then confirm "
                f'them: bench data confirm {name}{folder} --by "YOUR NAME" --because "HOW YOU KNOW"'
            )
        if self.request.dictionary.file:
            raise InputError(
                f"{problem} {self.request.dictionary.file} does not state them, or still says in "
                "`source` that they were proposed from the rows: complete it, or leave columns "
                "out by --drop-column"
            )
        if not dictionary.exists() and not dry_run:
            write_dictionary(self.declaration.schema, SchemaSources(), dictionary)
            shared.echo_error(f"wrote {dictionary}: a proposal from the rows, for you to correct")
        raise InputError(
            f"{problem} Correct every line of {dictionary}: bounds are what is possible, not what "
            "occurred. Write into `source` where you know it from, and run the same command with "
            f"--dictionary {shlex.quote(str(dictionary))}"
        )

    def added(self) -> None:
        """Add the table, if it is new."""
        from bench.plugins.user_tables import write_table_schema

        if self.proposal is not None:
            written = write_table_schema(self.proposal)
            shared.echo_error(f"kept the schema as {self.request.name!r}: {written.toml}")


def _renamed(request: NewTable) -> NewTable:
    """Return the request under another name where a built-in dataset has the one of the file."""
    from bench.data.files import user_table_files
    from bench.plugins import registry

    taken = set(registry.dataset_names()) - set(user_table_files())
    own = f"{request.name}-own"
    return dataclasses.replace(request, name=own) if request.name in taken else request


def _order(table: _Table, options: dict[str, Any]) -> tuple[ReleaseOrder, str]:
    """Return what is to be released, and why by this method."""
    from bench.engine.grid import delta_for
    from bench.engine.release import ReleaseOrder, check_method, choose_method
    from bench.errors import InputError
    from bench.plugins import registry
    from bench.privacy.accounting import Budget
    from bench.results.records import Variant

    declaration, parameters = table.declaration, options["parameters"]
    if parameters and not options["method"]:
        raise InputError("--parameters are those of a method: name it by --method")
    name, why = options["method"], "asked for by --method"
    if name is None:
        name, why = choose_method(declaration)
    check_method(name)
    registry.build_method(name, dict(parameters))
    if options["private_counts"] and options["delta"] is None:
        raise InputError(
            "--private-counts hides the number of rows, which the default delta would tell; name "
            "a --delta that is smaller than one divided by ten times that number"
        )
    delta = options["delta"] or delta_for(sum(declaration.by_class))
    order = ReleaseOrder(
        table=table.request.name,
        method=Variant(name, name, tuple(parameters.items())),
        budget=Budget(options["epsilon"], delta),
        rows=options["rows"],
        private_counts=options["private_counts"],
    )
    return order, why


def _limited(known: SpendingLedger, limit: float | None) -> SpendingLedger:
    return known if limit is None else dataclasses.replace(known, limit=limit)


# What is said and done ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Places:
    """The files of one release, all named after its output."""

    output: Path

    def _beside(self, ending: str) -> Path:
        return self.output.with_name(f"{self.output.stem}{ending}")

    @property
    def run(self) -> Path:
        """Run directory of the release."""
        return self._beside(".release")

    @property
    def ledger(self) -> Path:
        """Ledger of the release."""
        return self._beside(".ledger.json")

    @property
    def dossier(self) -> Path:
        """Dossier of the release."""
        return self._beside(".dossier.html")

    @property
    def dictionary(self) -> Path:
        """Proposed dictionary, where one is needed."""
        return self._beside(".dictionary.csv")

    def check(self) -> None:
        """Refuse to overwrite what an earlier release left."""
        from bench.errors import InputError

        for place in (self.run, self.ledger, self.dossier):
            if place.exists():
                raise InputError(
                    f"{place} exists and belongs to an earlier release; name another -o, or move it"
                )


def _say_plan(
    declaration: Declaration, order: ReleaseOrder, why: str, known: SpendingLedger, path: Path
) -> None:
    rows = sum(declaration.by_class)
    columns = shared.counted(len(declaration.schema.columns), "column")
    click.echo(f"table    {rows:,} rows, {columns}; protects one {declaration.unit}")
    click.echo(f"method   {order.method.label}: {why}")
    click.echo(
        f"spends   epsilon {order.budget.epsilon:g} at delta {order.budget.delta:.3g}; privacy "
        "that is spent cannot be won back"
    )
    if order.budget.epsilon >= _WEAK:
        shared.echo_error(
            f"warning: epsilon {order.budget.epsilon:g} promises next to nothing to the people in "
            "the table: the odds that one of them is identified may grow by a factor of "
            f"e^{order.budget.epsilon:g}. Usual values are 0.1 to 10"
        )
    click.echo(f"so far   {known.total().describe()} ({path})")
    if known.limit is not None:
        click.echo(f"limit    epsilon {known.limit:g} in total")


def _release(
    table: _Table,
    order: ReleaseOrder,
    spending: HeldSpending,
    places: _Places,
    steps: _Steps,
) -> None:
    from bench.data.conform import describe_briefly
    from bench.data.dataset import Dataset
    from bench.data.splits import ALL
    from bench.engine.plan import load_dataset
    from bench.engine.release import ReleaseFailed, make_release
    from bench.results.records import Variant

    table.added()
    name = table.request.name
    with steps.doing("encoding the rows by the public schema"):
        dataset = load_dataset(Variant(name, name), ALL, 0)
    if not isinstance(dataset, Dataset):
        shared.fail(str(dataset))
    for notice in filter(None, (dataset.differs, describe_briefly(dataset.adjusted))):
        shared.echo_error(one_line(f"for you only: {notice}"))

    def charged() -> None:
        shared.echo_error(f"charged epsilon {order.budget.epsilon:g} in {spending.path}")

    try:
        with steps.doing(f"{order.method.label}: fitting and drawing rows"):
            row = make_release(order, dataset, spending, places.output, places.run, charged)
    except ReleaseFailed as problem:
        shared.fail(str(problem), 1)
    except KeyboardInterrupt:
        shared.fail(
            f"interrupted: epsilon {order.budget.epsilon:g} stays charged in {spending.path}. "
            f"{places.run} is left of it, without rows: name another -o, or remove it",
            130,
        )
    _warn_of_noise(row, dataset.counts.by_class)
    total = spending.known.total().describe()
    _write_results(row, places, steps, total)
    click.echo(f"proven   epsilon {row.eps_proven:.4g} at delta {row.delta:.3g}: {row.verdict}")
    click.echo(f"total    {total} ({spending.path})")


def _warn_of_noise(row: CellRow, by_class: Sequence[int]) -> None:
    """Say where the noise leaves little of a small table; by public facts alone."""
    from bench.results.reproduce import json_object

    deviation = json_object(row.notes).get("count_deviation")
    smallest = min((count for count in by_class if count), default=0)
    if isinstance(deviation, float) and deviation > _MUCH * smallest:
        shared.echo_error(
            f"warning: the noise on every count is about {deviation:.0f} rows, and the smallest "
            f"class has {smallest:,}: much of the released table is noise. More rows, a larger "
            "--eps or fewer columns help"
        )


def _write_results(row: CellRow, places: _Places, steps: _Steps, total: str) -> None:
    from bench.engine.export import export_release
    from bench.leaderboard.dossier.material import gather
    from bench.leaderboard.dossier.page import write_dossier
    from bench.results.opening import read_text
    from bench.results.run_directory import RunStore
    from bench.results.writing import FOR_ALL, write_atomically, writing

    with steps.doing(f"writing {places.output}"):
        written = export_release(places.run, row.key, places.output)
        with RunStore.existing(places.run) as store:
            exported = {"file": written.path.name, "sha256": written.sha256}
            facts = {"exported": {**exported, "rows": written.rows}, "spending": total}
            store.write_manifest(facts)
        ledger = read_text(places.run, "releases", row.key, "ledger.json") or ""
        with writing(places.ledger, "or copy it from the run directory"):
            write_atomically(places.ledger, ledger.encode(), FOR_ALL)
        write_dossier(gather(places.run, row.key), places.dossier)
    for warning in written.warnings:
        shared.echo_error(f"warning: {warning}")
    click.echo(f"wrote    {written.path}: {written.rows:,} rows, {written.columns} columns")
    click.echo(f"wrote    {places.dossier}: for whoever decides whether it may leave")
    click.echo(f"wrote    {places.ledger}, {places.run} (all of the above, for `bench verify`)")


@final
class _Steps:
    """Says on standard error what is being done, and how long it took."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show a step: with a running clock on a terminal, in lines elsewhere."""
        from rich.console import Console

        started = time.perf_counter()
        what = one_line(what)
        if self._shown:
            from rich.markup import escape

            with Console(stderr=True).status(f"{escape(what)} ..."):
                yield
        else:
            shared.echo_error(f"{what} ...")
            yield
        shared.echo_error(f"{what}: {time.perf_counter() - started:.1f} s")
