"""What a plugin says about itself, described once for every reader.

`bench list`, the cards of the documentation and the pages of the leaderboard show the same records.
Those of the methods and datasets of a run are kept in its `about.json`, because the leaderboard
reads run directories only. No row is read to describe a dataset, and no path of this machine is
written. The file may come from a stranger: it is validated strictly, and a dataset counts as open
to everybody only where its own run says so.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar, final

from pydantic import Field, TypeAdapter, ValidationError

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.errors import StoreError
from bench.plugins.method import UNKNOWN, Method
from bench.plugins.metric import Metric, Output, RefitMetric
from bench.plugins.source import DatasetSource
from bench.plugins.user_tables import OwnTable

FILE = "about.json"
FORMAT_VERSION = 1

LARGEST_TEXT = 8_000
MOST_COLUMNS = 300
MOST_CATEGORIES = 40
_PIXELS = 2
"""Pixel columns of an image that are listed; the others are like them."""

_YEAR = re.compile(r"\b(?:19|20)\d\d\b")

_BUILT_IN = "bench.datasets."
_NO_AGREEMENT = "none"

_Item = TypeVar("_Item")

# Limits on what is read back from a file, enforced by pydantic.
Text = Annotated[str, Field(max_length=LARGEST_TEXT)]
Count = Annotated[int, Field(ge=0, lt=10**15)]
Bound = Annotated[float, Field(gt=-1e300, lt=1e300)]
Items = Annotated[tuple[_Item, ...], Field(max_length=5_000)]

Identity = tuple[str, str]
"""A dataset as a run means it: the plugin's name and its parameters as JSON with sorted keys."""


OWN_TABLE = "the user's own table"
"""Origin of a dataset that `bench data add` made."""


@final
@dataclass(frozen=True)
class ParameterDescription:
    """A hyperparameter of a method."""

    name: Text
    default: Text
    """As JSON; empty where there is none."""
    text: Text = ""


@final
@dataclass(frozen=True)
class MethodDescription:
    """What a method's own file says about it."""

    name: Text
    title: Text
    paper: Text = ""
    summary: Text = ""
    """Docstring of its class."""
    text: Text = ""
    """Docstring of its module."""
    uses_budget: bool = True
    uses_ipc: bool = True
    seeded: bool = True
    unit: Text = ""
    """Whom it protects, where that is not the dataset's unit."""
    environment: Text = ""
    requirements: Items[Text] = ()
    parameters: Items[ParameterDescription] = ()
    tuned_on: Items[Text] = (UNKNOWN,)
    """Datasets in view when the defaults were chosen, see `Method.tuned_on`."""
    link: Text = ""
    """Address of the paper."""
    family: Text = ""
    """Kind of method in a word or two."""
    by_maintainers: bool = False
    """Whether the maintainers of the benchmark designed it."""

    @property
    def year(self) -> str:
        """Year of the paper, the last one that its text names; empty where it names none."""
        years = _YEAR.findall(self.paper)
        return years[-1] if years and not self.paper.startswith("none") else ""

    @property
    def address(self) -> str:
        """Address of the paper, if a page may link to it: cards can come from others."""
        return self.link if self.link.startswith("https://") else ""

    @property
    def tuned_in_words(self) -> str:
        """The datasets in view when the defaults were chosen, as a list."""
        return tuned_in_words(self.tuned_on)


@final
@dataclass(frozen=True)
class ColumnDescription:
    """A declared column of a dataset."""

    name: Text
    kind: Text
    role: Text = "feature"
    low: Bound | None = None
    high: Bound | None = None
    categories: Annotated[tuple[Text, ...], Field(max_length=MOST_CATEGORIES)] = ()
    """The first `MOST_CATEGORIES` of them."""
    category_count: Count = 0
    text: Text = ""
    source: Text = ""
    """Where bounds or categories come from."""
    missing: bool = False
    """True where a number can be missing."""
    ordered: bool = False
    """True where the order of the categories means something."""
    decimal: bool = False
    """True where whole numbers are written as 1.0."""


@final
@dataclass(frozen=True)
class ClassCount:
    """Declared rows of one class, or of one site."""

    name: Text
    rows: Count


@final
@dataclass(frozen=True)
class DatasetDescription:
    """What a dataset's own file declares. Nothing here was computed from rows, unless `inferred`
    says so."""

    name: Text
    parameters: Text
    """As JSON with sorted keys."""
    title: Text
    task: Text = ""
    licence: Text = ""
    citation: Text = ""
    source: Text = ""
    origin: Text = ""
    """Where the rows come from, in some words."""
    access: Text = ""
    """How to obtain the rows, in some sentences."""
    agreement: Text = ""
    """What must be agreed to before the files can be obtained; empty where there are no files."""
    extra: Text = ""
    """The extra of this distribution that brings the data, where it is not in the core."""
    stands_for: Text = ""
    unit: Text = ""
    simulated: bool = False
    inferred: bool = False
    """True where bounds, categories and counts were read off the rows."""
    open: bool = False
    """True where anybody may obtain the rows."""
    column_count: Count = 0
    feature_count: Count = 0
    numeric_count: Count = 0
    """Numeric features."""
    columns: Annotated[tuple[ColumnDescription, ...], Field(max_length=MOST_COLUMNS)] = ()
    """The first `MOST_COLUMNS` of them."""
    label: Text = ""
    by_class: Items[ClassCount] = ()
    by_site: Items[ClassCount] = ()
    sites: Items[Text] = ()
    quasi_identifiers: Items[Text] = ()
    sensitive: Items[Text] = ()
    rules: Items[Text] = ()

    @property
    def identity(self) -> Identity:
        """What distinguishes it from the other datasets of its run."""
        return self.name, self.parameters

    @property
    def rows(self) -> int:
        """Declared rows of the whole table."""
        return sum(item.rows for item in self.by_class)


@final
@dataclass(frozen=True)
class MetricDescription:
    """What a metric says about itself, with every number that it computes."""

    name: str
    family: str
    definition: str
    tasks: tuple[str, ...]
    cost: str
    optional: bool
    refits: bool
    """True where it fits the method again."""
    outputs: tuple[Output, ...]


# From plugins -------------------------------------------------------------------------------------


def describe_method(kind: type[Method]) -> MethodDescription:
    """Describe a method from its class and the docstring of its module."""
    environment = kind.environment
    module = inspect.getmodule(kind)
    # A class without a docstring would answer with that of its base.
    summary = inspect.cleandoc(kind.__doc__ or "")
    return MethodDescription(
        name=kind.name,
        title=kind.title,
        paper=kind.paper,
        # A dataclass without a docstring is given its signature as one.
        summary="" if summary.startswith(f"{kind.__name__}(") else summary,
        text=inspect.cleandoc((module.__doc__ if module else "") or ""),
        uses_budget=bool(kind.uses_budget),
        uses_ipc=bool(kind.uses_ipc),
        seeded=bool(kind.seeded),
        unit=kind.unit,
        environment="" if environment is None else environment.name,
        requirements=() if environment is None else environment.requirements,
        parameters=_parameters(kind),
        tuned_on=tuple(kind.tuned_on),
        link=kind.link,
        family=kind.family,
        by_maintainers=bool(kind.by_maintainers),
    )


def tuned_in_words(tuned_on: Sequence[str]) -> str:
    """Return the datasets of `Method.tuned_on` as a list."""
    names = [name for name in tuned_on if name != UNKNOWN]
    if UNKNOWN not in tuned_on:
        return ", ".join(names) or "none"
    return f"{', '.join(names)}; others are not on record" if names else "not on record"


def _parameters(kind: type[Method]) -> tuple[ParameterDescription, ...]:
    docs = _field_docs(kind)
    # A method need not be a dataclass, so its type does not say that it may be.
    plugin: Any = kind
    return tuple(
        ParameterDescription(item.name, _default(item), docs.get(item.name, ""))
        for item in (dataclasses.fields(plugin) if dataclasses.is_dataclass(plugin) else ())
    )


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        value = item.default
    elif item.default_factory is not dataclasses.MISSING:
        value = item.default_factory()
    else:
        return ""
    return json.dumps(value, default=str)


def _field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the text below each field of a class, which Python itself does not keep."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for item, below in itertools.pairwise(body):
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            docs[item.target.id] = " ".join(below.value.value.split())
    return docs


def describe_dataset(
    source: DatasetSource, parameters: Mapping[str, Any] | None = None
) -> DatasetDescription:
    """Describe a dataset without reading a row; `parameters` are those that a grid gave it."""
    declared = source.declare()
    schema = declared.schema
    numeric = [column for column in schema.features if isinstance(column, Numeric)]
    return DatasetDescription(
        name=source.name,
        parameters=_sorted_json(dict(parameters or {})),
        title=declared.title,
        task=schema.task.value,
        licence=declared.licence,
        citation=" ".join(declared.citation.split()),
        source=declared.source,
        origin=_origin(source, declared),
        access=_access(declared),
        agreement="" if declared.obtain is None else declared.obtain.agreement,
        extra=declared.extra,
        stands_for=declared.stands_for,
        unit=declared.unit,
        simulated=declared.simulated,
        inferred=schema.inferred,
        open=open_to_anybody(source, declared),
        column_count=len(schema.columns),
        feature_count=len(schema.features),
        numeric_count=len(numeric),
        columns=tuple(map(_column, _listed(schema))),
        label=schema.label.name,
        by_class=_counts(schema.classes, declared.by_class),
        by_site=_counts(
            tuple(declared.by_site_class), tuple(map(sum, declared.by_site_class.values()))
        ),
        sites=() if schema.site is None else schema.site.categories,
        quasi_identifiers=schema.quasi_identifiers,
        sensitive=schema.sensitive,
        rules=tuple(rule.name for rule in schema.rules),
    )


def open_to_anybody(source: DatasetSource, declared: Declaration) -> bool:
    """Return True where anybody may obtain the rows, and False in doubt.

    Simulated rows belong to nobody. What a plugin of this distribution reads from an installed
    package, or from files that ask for no agreement, is public. A third-party plugin without an
    `[obtain]` table may read anything, so that it must name where each file can be downloaded. A
    user's own table is never open.
    """
    if isinstance(source, OwnTable) or declared.schema.inferred:
        return False
    if declared.licence.strip().lower().startswith("closed"):
        return False
    obtain = declared.obtain
    if obtain is not None and obtain.agreement.strip().lower() != _NO_AGREEMENT:
        return False
    if declared.simulated or type(source).__module__.startswith(_BUILT_IN):
        return True
    return (
        obtain is not None
        and bool(obtain.files)
        and all(file.url or obtain.packaged(file.name) for file in obtain.files)
    )


def _origin(source: DatasetSource, declared: Declaration) -> str:
    if isinstance(source, OwnTable):
        return OWN_TABLE
    if declared.simulated:
        return "a simulator"
    if declared.obtain is not None:
        return f"files of {declared.obtain.publisher} ({declared.obtain.page})"
    return "an installed package" + (f" (extra {declared.extra})" if declared.extra else "")


def _access(declared: Declaration) -> str:
    obtain = declared.obtain
    if obtain is None:
        extra = f" (extra `{declared.extra}`)" if declared.extra else ""
        return f"built in{extra}: {declared.source}"
    files = ", ".join(f"`{obtain.folder}/{file.name}`" for file in obtain.files)
    terms = f"{obtain.publisher}, {obtain.page}; agreement: {obtain.agreement}."
    packages = "".join(
        f" Also inside the {package.describe()} ({package.licence}): `bench data get` takes "
        f"{', '.join(f'`{member.file}`' for member in package.members)} from it."
        for package in obtain.packages
    )
    return f"{terms} {obtain.how} Files: {files}" + (f".{packages}" if packages else "")


def _listed(schema: Schema) -> Sequence[Column]:
    features = schema.features[:_PIXELS] if schema.task is Task.IMAGE else schema.features
    others = [column for column in schema if column.role is not Role.FEATURE]
    return [*others, *features][:MOST_COLUMNS]


def _column(column: Column) -> ColumnDescription:
    categories = column.categories if isinstance(column, Categorical) else ()
    described = ColumnDescription(
        name=column.name,
        kind="binary" if len(categories) == 2 else "category",
        role=column.role.value,
        categories=categories[:MOST_CATEGORIES],
        category_count=len(categories),
        text=column.description,
        source=column.source,
        ordered=isinstance(column, Categorical) and column.ordered,
        decimal=column.decimal,
    )
    if isinstance(column, Numeric):
        kind = "whole number" if column.integer else "number"
        return replace(
            described, kind=kind, low=column.low, high=column.high, missing=column.missing
        )
    return described


def _counts(names: Sequence[str], rows: Sequence[int]) -> tuple[ClassCount, ...]:
    return tuple(ClassCount(name, int(count)) for name, count in zip(names, rows, strict=False))


def describe_metric(metric: Metric | RefitMetric) -> MetricDescription:
    """Describe a metric; every text is one line without its final full stop."""
    outputs = tuple(
        replace(output, definition=_one_line(output.definition), weak=_one_line(output.weak))
        for output in metric.declared()
    )
    return MetricDescription(
        name=metric.name,
        family=metric.family.value,
        definition=_one_line(metric.definition),
        tasks=tuple(task.value for task in metric.tasks),
        cost=metric.cost,
        optional=metric.optional,
        refits=isinstance(metric, RefitMetric),
        outputs=outputs,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")


# The file of a run --------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Descriptions:
    """The content of one `about.json`."""

    methods: Items[MethodDescription] = ()
    datasets: Items[DatasetDescription] = ()

    def to_json(self) -> str:
        """Return the content of the file; texts that are too long are cut."""
        return json.dumps({"form": FORMAT_VERSION, **_shortened(asdict(self))}, indent=1)

    def joined(self, later: Descriptions) -> Descriptions:
        """Join with those of a later run; a dataset stays open only where both say so."""
        methods = {method.name: method for method in (*self.methods, *later.methods)}
        datasets = {dataset.identity: dataset for dataset in self.datasets}
        for dataset in later.datasets:
            before = datasets.get(dataset.identity)
            still_open = dataset.open and (before is None or before.open)
            datasets[dataset.identity] = replace(dataset, open=still_open)
        return Descriptions(tuple(methods.values()), tuple(datasets.values()))


def parse_descriptions(text: str) -> Descriptions:
    """Parse the content of the file, strictly: one bad record makes all of it unreadable.

    Unknown fields of a later version are ignored.
    """
    try:
        document = json.loads(text)
        # Half of a surrogate pair is a character in JSON and none in a file.
        content = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as problem:
        raise StoreError(f"{FILE} is not JSON ({type(problem).__name__})") from None
    version = document.get("form") if isinstance(document, dict) else None
    if type(version) is not int or version != FORMAT_VERSION:
        raise StoreError(
            f"{FILE} is not of format version {FORMAT_VERSION} (written by another version?)"
        )
    try:
        descriptions = TypeAdapter(Descriptions).validate_json(content, strict=True)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise StoreError(f"{FILE}: {place}: {first['msg'][:200]}") from None
    for names in (
        [method.name for method in descriptions.methods],
        [dataset.identity for dataset in descriptions.datasets],
    ):
        if len(set(names)) < len(names):
            raise StoreError(f"{FILE} describes one method or dataset twice")
    return descriptions


def _sorted_json(parameters: Any) -> str:
    """Return parameters as JSON with sorted keys, as the loaded tables spell them."""
    return json.dumps(parameters, sort_keys=True)


def dataset_identity(name: str, label: str, parameters: str) -> Identity:
    """Return the identity of the dataset of a result row."""
    try:
        return name or label, _sorted_json(json.loads(parameters))
    except ValueError:
        return name or label, parameters


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LARGEST_TEXT:
        return f"{value[: LARGEST_TEXT - 1]}…"
    if isinstance(value, dict):
        return {name: _shortened(item) for name, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, tuple) else value
