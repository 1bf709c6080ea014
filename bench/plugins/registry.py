"""Finds plugins: shipped ones by file name, third-party ones by entry point.

Shipped methods and datasets are one module each, named like the plugin, in their room or in a
folder of it, so that names are known without importing anything. Metrics share files, so listing
them imports them; their heavy libraries are imported when they compute.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

from bench.data.files import user_table_files
from bench.errors import InputError, UnknownNameError, text_of

if TYPE_CHECKING:
    from bench.plugins.method import Method
    from bench.plugins.metric import Metric, RefitMetric
    from bench.plugins.source import DatasetSource

Plugin = TypeVar("Plugin")

_TEXT_CHARACTERS = 300


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, without importing them."""
    return tuple(sorted({*_modules("methods"), *_entry_points("methods")}))


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets, without importing them."""
    return tuple(sorted({*_modules("datasets"), *_entry_points("datasets"), *user_table_files()}))


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics."""
    return tuple(sorted(_metrics()))


def skipped_plugins() -> tuple[str, ...]:
    """Return why metrics are left out, each in one line: those that cannot be imported or used."""
    return _surveyed().skipped


def method_class(name: str) -> type[Method]:
    """Return the class of a method."""
    from bench.plugins.method import Method

    return _load("method", name, Method, method_names())


def dataset_class(name: str) -> type[DatasetSource]:
    """Return the class of a dataset."""
    from bench.plugins.source import DatasetSource

    user_tables = user_table_files()
    if name in user_tables:
        if name in _modules("datasets") or name in _entry_points("datasets"):
            raise InputError(
                f"dataset {name!r} is both a plugin and your own table {user_tables[name]}; give "
                "your table another name"
            )
        from bench.plugins.user_tables import own_table_class

        return own_table_class(name, user_tables[name])
    return _load("dataset", name, DatasetSource, dataset_names())


def metric(name: str) -> Metric | RefitMetric:
    """Return a metric by name."""
    known = _metrics()
    if name not in known:
        raise UnknownNameError("metric", name, known)
    return known[name]()


def refits(name: str) -> bool:
    """Return True for a metric that fits the method again."""
    from bench.plugins.metric import RefitMetric

    return isinstance(metric(name), RefitMetric)


def select_metrics(wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names of metrics, chosen by names of metrics, numbers or families, or by `all`.

    `default`, and an empty list, is every metric that is not optional; `headline` those by which
    releases are ranked; `none` no metric at all.
    """
    from bench.plugins.metric import HEADLINES

    if "none" in wanted:
        if set(wanted) != {"none"}:
            raise InputError("metrics: `none` excludes all others; name it alone")
        return ()
    known = _metrics()
    default = {name for name, kind in known.items() if not kind.optional}
    headline = {
        name
        for name, kind in known.items()
        if any(output.name in HEADLINES.values() for output in kind.declared())
    }
    groups = {"all": set(known), "default": default, "headline": headline}
    for name, kind in known.items():
        if name in default:
            groups.setdefault(kind.family.value, set()).add(name)
    chosen: set[str] = set()
    for item in wanted or ("default",):
        matches = {item} & set(known) or groups.get(item, set())
        matches = matches or {
            name
            for name, kind in known.items()
            if any(output.name == item for output in kind.declared())
        }
        if not matches:
            numbers = [output.name for kind in known.values() for output in kind.declared()]
            raise UnknownNameError("metric", item, {*known, *groups, *numbers})
        chosen |= matches
    return tuple(sorted(chosen))


def build_method(name: str, parameters: Mapping[str, Any] | None = None) -> Method:
    """Build a method with hyperparameters; unknown ones are refused, with the known ones listed."""
    return _construct("method", method_class(name), parameters or {})


def build_source(name: str, parameters: Mapping[str, Any] | None = None) -> DatasetSource:
    """Build a dataset source with parameters."""
    return _construct("dataset", dataset_class(name), parameters or {})


def _construct(kind: str, plugin: type[Plugin], parameters: Mapping[str, Any]) -> Plugin:
    if not is_dataclass(plugin):
        raise InputError(f"{kind} {plugin.__name__} is not a frozen dataclass of its parameters")
    known = {item.name for item in fields(plugin)}
    for name in parameters:
        if name not in known:
            owner = getattr(plugin, "name", plugin.__name__)
            raise UnknownNameError(f"parameter of {kind} {owner}", name, known or {"(none)"})
    try:
        return plugin(**parameters)
    except InputError:
        raise
    except Exception as problem:
        # Of a plugin's own check: the text is about the parameters, which the user gave.
        raise InputError(f"{kind} {plugin.__name__}: {_said(problem)}") from None


@functools.cache
def _modules(room: str) -> Mapping[str, str]:
    """Return the import names of the plugin modules of a room, by plugin name.

    Nothing is imported.

    A module is a plugin unless its name, or the name of a folder above it, starts with an
    underscore.
    """
    modules: dict[str, str] = {}
    waiting = [(Path(folder), f"bench.{room}") for folder in _package_path(room)]
    while waiting:
        folder, package = waiting.pop()
        for module in pkgutil.iter_modules([str(folder)]):
            if module.name.startswith("_"):
                continue
            place = f"{package}.{module.name}"
            if module.ispkg:
                waiting.append((folder / module.name, place))
            else:
                modules[module.name.replace("_", "-")] = place
    return modules


def _package_path(room: str) -> Sequence[str]:
    return importlib.import_module(f"bench.{room}").__path__


@functools.cache
def _entry_points(folder: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in _all_entry_points(folder)}


@functools.cache
def _all_entry_points(folder: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Read the metadata of every installed distribution, which takes some 20 ms: once."""
    return tuple(importlib.metadata.entry_points(group=f"bench.{folder}"))


@functools.cache
def _announced(folder: str, name: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    """All entry points of one name, of whatever distributions; usually one."""
    points = [point for point in _all_entry_points(folder) if point.name == name]
    return tuple({point.value: point for point in points}.values())


def _in_words(point: importlib.metadata.EntryPoint) -> str:
    of = f" of {point.dist.name}" if point.dist is not None else ""
    return f"{point.value}{of}"


def _refuse_doubled(kind: str, name: str) -> None:
    """Refuse a name that two plugins have: which of them is meant must not depend on luck."""
    room = f"{kind}s"
    places = [_in_words(point) for point in _announced(room, name)]
    point = _entry_points(room).get(name)
    if point is not None and not places:
        places = [_in_words(point)]
    if name in _modules(room) and places:
        places.insert(0, f"the built-in {_modules(room)[name]}")
    if len(places) > 1:
        raise InputError(
            f"{kind} {name!r} is announced twice: by {' and by '.join(places)}; rename one of "
            "them, or uninstall its package"
        )


@functools.cache
def _load(kind: str, name: str, base: type[Plugin], known: tuple[str, ...]) -> type[Plugin]:
    if name not in known:
        raise UnknownNameError(kind, name, known)
    _refuse_doubled(kind, name)
    points = _entry_points(f"{kind}s")
    if name in points:
        point = points[name]
        return _checked(kind, name, _loaded(kind, point), base, _in_words(point))
    module = importlib.import_module(_modules(f"{kind}s")[name])
    plugins = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, base) and item.__module__ == module.__name__
    ]
    if len(plugins) != 1:
        raise InputError(
            f"{module.__name__} must define exactly one {base.__name__}, has {len(plugins)}"
        )
    return _checked(kind, name, plugins[0], base)


def _loaded(kind: str, point: importlib.metadata.EntryPoint) -> Any:
    """What an entry point names; a broken third-party plugin is named, whatever it raises."""
    try:
        return point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise InputError(
            f"{kind} {point.name!r} ({_in_words(point)}) cannot be imported: {_said(problem)}"
        ) from problem


def _said(problem: BaseException) -> str:
    """Type and text of an exception of a plugin that has not seen any rows."""
    return f"{type(problem).__name__}: {text_of(problem, _TEXT_CHARACTERS)}"


def _checked(
    kind: str, name: str, plugin: Any, base: type[Plugin], where: str = ""
) -> type[Plugin]:
    what = f"{kind} {name!r}{where and f' ({where})'}"
    if not (inspect.isclass(plugin) and issubclass(plugin, base)):
        raise InputError(f"{what} is not a {base.__name__}")
    if getattr(plugin, "name", None) != name:
        raise InputError(
            f"{what} calls itself {getattr(plugin, 'name', None)!r}; the names must agree"
        )
    return plugin


# Metrics: all of them are imported, so that one that is broken must not take the others along -----

AnyMetric: TypeAlias = "type[Metric] | type[RefitMetric]"


@final
@dataclass(frozen=True)
class _Survey:
    """All metrics that can be used, and why others cannot."""

    metrics: Mapping[str, AnyMetric]
    skipped: tuple[str, ...]


def _metrics() -> Mapping[str, AnyMetric]:
    return _surveyed().metrics


@functools.cache
def _surveyed() -> _Survey:
    metrics: dict[str, AnyMetric] = {}
    numbers: dict[str, str] = {}
    skipped: list[str] = []
    for found in (*_shipped_metrics(), *_announced_metrics()):
        try:
            kind, where = found()
            _check_declaration(kind, where)
            if kind.name in metrics:
                known = metrics[kind.name]
                raise InputError(
                    f"metric {kind.name!r} is announced twice: by "
                    f"{known.__module__}:{known.__name__} and by {where}; rename one of them"
                )
            for output in kind.declared():
                if output.name in numbers:
                    raise InputError(
                        f"metric {kind.name!r} ({where}): its number {output.name!r} is one of "
                        f"metric {numbers[output.name]!r}; rename one of them"
                    )
        except InputError as problem:
            skipped.append(f"skipped: {problem}")
            continue
        metrics[kind.name] = kind
        numbers |= {output.name: kind.name for output in kind.declared()}
    return _Survey(metrics, tuple(skipped))


Found: TypeAlias = "Callable[[], tuple[AnyMetric, str]]"
"""Returns a metric and where it is from, or raises `InputError` where it cannot be loaded."""


def _shipped_metrics() -> Iterator[Found]:
    from bench.plugins.metric import Metric, RefitMetric

    for place in _modules("metrics").values():
        try:
            loaded = importlib.import_module(place)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            yield functools.partial(
                _refused, f"the metrics of {place} cannot be imported: {_said(problem)}"
            )
            continue
        for _, item in inspect.getmembers(loaded, inspect.isclass):
            if (
                issubclass(item, (Metric, RefitMetric))
                and item.__module__ == loaded.__name__
                and not inspect.isabstract(item)
            ):
                yield functools.partial(_as_found, item, f"{place}:{item.__name__}")


def _announced_metrics() -> Iterator[Found]:
    for name, point in _entry_points("metrics").items():
        for one in _announced("metrics", name) or (point,):
            yield functools.partial(_announced_metric, one)


def _announced_metric(point: importlib.metadata.EntryPoint) -> tuple[AnyMetric, str]:
    from bench.plugins.metric import Metric, RefitMetric

    plugin = _loaded("metric", point)
    refits = inspect.isclass(plugin) and issubclass(plugin, RefitMetric)
    base: Any = RefitMetric if refits else Metric
    where = _in_words(point)
    return _checked("metric", point.name, plugin, base, where), where


def _as_found(kind: AnyMetric, where: str) -> tuple[AnyMetric, str]:
    return kind, where


def _refused(why: str) -> tuple[AnyMetric, str]:
    raise InputError(why)


def _check_declaration(kind: AnyMetric, where: str) -> None:
    """Refuse a metric whose declaration the tables and pages could not use."""
    from bench.data.schema import Task
    from bench.plugins.metric import Direction, Family, Output

    def check(good: object, wanted: str) -> None:
        if not good:
            raise InputError(f"metric {name!r} ({where}): {wanted}")

    def tuple_of(wanted: type[Any], values: object) -> bool:
        return isinstance(values, tuple) and all(isinstance(one, wanted) for one in values)

    name: object = getattr(kind, "name", None)
    check(isinstance(name, str) and name, "it has no name")
    check(not inspect.isabstract(kind), "it lacks `compute`")
    check(isinstance(getattr(kind, "family", None), Family), "`family` must be a Family")
    check(isinstance(kind.direction, Direction), "`direction` must be a Direction")
    check(isinstance(getattr(kind, "definition", None), str), "`definition` must be a text")
    check(tuple_of(Task, kind.tasks), "`tasks` must be a tuple of Task")
    check(tuple_of(Output, kind.outputs), "`outputs` must be a tuple of Output")
    for output in kind.declared():
        check(output.name and tuple_of(str, (output.name,)), "an output has no name")
        check(isinstance(output.direction, Direction), "an output has no Direction")
        check(
            output.limit is None or type(output.limit) in (int, float),
            f"the limit of {output.name!r} must be a number",
        )
    names = [output.name for output in kind.declared()]
    check(len(names) == len(set(names)), "two of its outputs have one name")
