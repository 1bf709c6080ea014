"""What code does, as a hash: of the syntax trees of a module and of all that it imports.

Comments, docstrings, formatting, positions and the class fields that only describe a plugin are
left out of the trees, so that editing them changes no hash. Of the modules that are imported, at
the top or inside functions, those count that belong to this project or to the plugin itself: its
distribution, or the files beside it. Other libraries count by their versions (`bench.engine.keys`).
Modules are found by their names and read, not imported; a hash holds their dotted names, not where
they are installed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import bench
from bench.errors import InputError

UNCOUNTED_ROOMS = frozenset(
    (
        "audit",
        "cli",
        "cluster",
        "conformance",
        "engine",
        "environments",
        "leaderboard",
        "results",
        "tracking",
    )
)
"""Rooms that plan, run, keep and show results: nothing there changes what a plugin computes."""

PLUGIN_GROUPS = ("bench.methods", "bench.datasets", "bench.metrics")
"""Groups of entry points under which distributions announce plugins."""

_TRUSTED = "bench.privacy.trusted"
_TABLE = f"{_TRUSTED}.table"
"""Imports every trusted mechanism; only those that a plugin delegates to count for it."""

_UNSAID = frozenset({"ctx", "kind", "type_comment"})
"""Fields of syntax trees that repeat what is said elsewhere, or how it was written."""

DESCRIBING = frozenset(("title", "paper", "link", "family", "by_maintainers", "tuned_on", "search"))
"""Fields of plugin classes that pages and `bench tune` read: no release depends on them."""

_SHARED_FOLDERS = ("site-packages", "dist-packages")
"""Folders of many distributions: what lies beside a plugin there is not part of it."""


@final
@dataclass(frozen=True)
class Parsed:
    """What one source file does and imports."""

    digest: str
    imports: tuple[tuple[int, str, str], ...]
    """Level (of a relative import), module, and the name taken from it ("" for the module)."""
    strings: frozenset[str]
    delegates: bool
    """True where something is delegated to a trusted mechanism."""


@final
@dataclass(frozen=True)
class Location:
    """File and folders of a module."""

    file: Path | None
    """None for a namespace package."""
    folders: tuple[Path, ...] = ()
    """Where the modules of a package are; none for a plain module."""


@final
@dataclass(frozen=True)
class Closure:
    """Modules that count, by dotted name."""

    modules: Mapping[str, Parsed]

    @functools.cached_property
    def digest(self) -> str:
        """Hash of what all of them do."""
        lines = sorted(f"{name} {parsed.digest}" for name, parsed in self.modules.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:20]

    @functools.cached_property
    def libraries(self) -> frozenset[str]:
        """Top-level names that the plugin's own modules import.

        Modules of this project count where they are plugins: the kernel's imports are the same for
        every method.
        """
        return frozenset(
            module.partition(".")[0]
            for name, parsed in self.modules.items()
            if not name.startswith("bench.") or name.startswith(("bench.methods", "bench.metrics"))
            for level, module, _ in parsed.imports
            if not level
        )


def code_hash(*modules: str) -> str:
    """Hash of what these modules of the project do, with all that they import."""
    return module_closure(*modules).digest


@functools.cache
def module_closure(*modules: str) -> Closure:
    """These modules and those that they import; their own rooms count."""
    rooms = {name.split(".")[1] for name in modules}
    return _Walk(frozenset(), None, UNCOUNTED_ROOMS - rooms).closure(modules)


@functools.cache
def class_closure(plugin: type, *harness: str) -> Closure:
    """The module of a plugin's class and those that it imports.

    `harness`: modules of the project that take part in what the plugin gives, beside those that it
    imports itself.
    """
    return plugin_closure(plugin.__module__, *harness)


@functools.cache
def plugin_closure(name: str, *harness: str) -> Closure:
    """The same of a module of a plugin, given by its name."""
    if name.startswith("bench."):
        return module_closure(name, *harness)
    top = name.partition(".")[0]
    listed = _modules_beside(top)
    home = None if listed else _home(top)
    return _Walk(listed | {top}, home, UNCOUNTED_ROOMS).closure([name, *harness])


def forget() -> None:
    """Read sources anew: they are read once per process otherwise."""
    for cached in (module_closure, class_closure, plugin_closure, _parsed, _place):
        cached.cache_clear()


# Which modules ------------------------------------------------------------------------------------


def _modules_beside(top: str) -> frozenset[str]:
    """Top-level modules of the distribution that announces plugins in this one."""
    for group in PLUGIN_GROUPS:
        for point in importlib.metadata.entry_points(group=group):
            if point.module.partition(".")[0] == top and point.dist is not None:
                return frozenset(distribution_modules(point.dist)) - {"bench"}
    return frozenset()


def _home(top: str) -> Path | None:
    """The folder of a plugin that no distribution lists: what lies beside it is part of it."""
    place = _place(top, None)
    if place is None or place.file is None:
        return None
    home = (place.folders[0] if place.folders else place.file).parent
    return None if home.name in _SHARED_FOLDERS else home


def distribution_modules(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Top-level modules that a distribution says it has."""
    yield from (distribution.read_text("top_level.txt") or "").split()
    for file in distribution.files or ():
        first = file.parts[0]
        if file.suffix == ".py" and not first.startswith(("..", "__editable__")):
            yield first.removesuffix(".py")


@final
class _Walk:
    """Follows imports as far as modules count."""

    def __init__(
        self, tops: frozenset[str], home: Path | None, uncounted_rooms: frozenset[str]
    ) -> None:
        self._tops = tops
        self._home = home
        self._uncounted = uncounted_rooms
        self._modules: dict[str, Parsed] = {}

    def closure(self, roots: Sequence[str]) -> Closure:
        self._follow(part for root in roots for part in _with_packages(root))
        for name in roots:
            if name not in self._modules:
                raise InputError(
                    f"module {name}: its source is not found, and results are keyed by the source "
                    "that made them; define plugins in a file"
                )
        if _TABLE in self._modules:
            self._follow(self._mechanisms())
        return Closure(self._modules)

    def _follow(self, names: Iterable[str]) -> None:
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self._modules or not self._counts(name):
                continue
            place = self._place(name)
            if place is None or place.file is None:
                continue
            parsed = self._modules[name] = _parsed(place.file)
            package = name if place.folders else name.rpartition(".")[0]
            for target in self._targets(package, parsed):
                if name == _TABLE and target.startswith(_TRUSTED):
                    continue
                waiting += _with_packages(target)

    def _place(self, name: str) -> Location | None:
        # A folder `bench` beside a plugin is another one.
        return _place(name, None if name.partition(".")[0] == "bench" else self._home)

    def _counts(self, name: str) -> bool:
        top, _, below = name.partition(".")
        if top == "bench":
            # The page of public names itself computes nothing: their homes count.
            return below != "" and below.partition(".")[0] not in self._uncounted
        beside = self._home is not None and _in_folder(self._home, top) is not None
        return top in self._tops or beside

    def _targets(self, package: str, parsed: Parsed) -> Iterator[str]:
        for level, module, name in parsed.imports:
            base = module
            if level:
                above = package.split(".")[: len(package.split(".")) - level + 1]
                base = ".".join([*above, module] if module else above)
            if base == "bench" and name in bench.HOMES:
                yield bench.HOMES[name]
                continue
            if not base or (base != "bench" and not self._counts(base)):
                continue
            yield base
            if name and self._place(f"{base}.{name}") is not None:
                yield f"{base}.{name}"

    def _mechanisms(self) -> Iterator[str]:
        """Modules of the trusted mechanisms that are named by what was followed so far.

        All of them where it cannot be seen which one is meant.
        """
        from bench.privacy.trusted.table import TABLE

        named = frozenset[str]().union(
            *(parsed.strings for name, parsed in self._modules.items() if name != _TABLE)
        )
        mechanisms = [entry for name, entry in TABLE.items() if name in named]
        delegates = any(
            parsed.delegates
            for name, parsed in self._modules.items()
            if not name.startswith("bench.privacy.")
        )
        unclear = delegates and not mechanisms
        for entry in mechanisms:
            calls = (getattr(entry, name, None) for name in ("event", "run"))
            modules = {getattr(call, "__module__", _TABLE) for call in calls}
            unclear = unclear or _TABLE in modules
            yield from modules
        if unclear:
            place = _place(_TRUSTED, None)
            for folder in place.folders if place is not None else ():
                yield from (f"{_TRUSTED}.{file.stem}" for file in folder.glob("*.py"))


def _with_packages(name: str) -> Iterator[str]:
    """A module and the packages above it, whose `__init__` runs first."""
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


@functools.cache
def _place(name: str, home: Path | None) -> Location | None:
    """Where a module is; None where there is none. Packages above it are not imported."""
    parent, _, last = name.rpartition(".")
    if not parent:
        beside = None if home is None else _in_folder(home, name)
        return beside or _found_by_python(name)
    above = _place(parent, home)
    for folder in () if above is None else above.folders:
        if place := _in_folder(folder, last):
            return place
    # Rooms such as `bench.methods` may lie beside the package, where the installation says.
    return _found_by_python(name) if parent == "bench" else None


def _in_folder(folder: Path, name: str) -> Location | None:
    package = folder / name
    if (package / "__init__.py").is_file():
        return Location(package / "__init__.py", (package,))
    for file in (folder / f"{name}.py", *sorted(folder.glob(f"{name}.*.so"))):
        if file.is_file():
            return Location(file)
    return Location(None, (package,)) if package.is_dir() else None


def _found_by_python(name: str) -> Location | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        file = getattr(sys.modules.get(name), "__file__", None)
        return None if file is None else Location(Path(file))
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    folders = tuple(Path(place) for place in spec.submodule_search_locations or ())
    return Location(file, folders) if file or folders else None


# What a module does -------------------------------------------------------------------------------


@functools.cache
def _parsed(file: Path) -> Parsed:
    content = read_source(file)
    if file.suffix != ".py":
        return Parsed(hashlib.sha256(content).hexdigest(), (), frozenset(), False)
    try:
        tree = ast.parse(content)
    except SyntaxError as problem:
        raise InputError(f"{file}: not valid Python ({problem})") from None
    pieces: list[str] = []
    _write(tree, pieces)
    nodes = list(_executed(tree))
    return Parsed(
        digest=hashlib.sha256("\0".join(pieces).encode(errors="surrogatepass")).hexdigest(),
        imports=tuple(dict.fromkeys(_imports(nodes))),
        strings=frozenset(
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
        delegates=any(isinstance(n, ast.Attribute) and n.attr == "delegate" for n in nodes),
    )


def read_source(file: Path) -> bytes:
    """Content of a source file."""
    return file.read_bytes()


def _write(node: object, pieces: list[str]) -> None:
    """Spell a syntax tree without docstrings: the same in every version of Python.

    Fields that are empty are left out, since later versions have more of them.
    """
    if isinstance(node, ast.AST):
        pieces.append(type(node).__name__ + "(")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in _UNSAID:
                continue
            pieces.append(name)
            _write(value, pieces)
        pieces.append(")")
    elif isinstance(node, list):
        pieces.append("[")
        for item in node:
            if not (_is_text(item) or _describes(item)):
                _write(item, pieces)
        pieces.append("]")
    else:
        pieces.append(repr(node))


def _is_text(node: object) -> bool:
    """True for a string that stands alone as a statement: it documents and does nothing."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _describes(node: object) -> bool:
    """True for `name: ClassVar[...] = value` that only describes a plugin."""
    return (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in DESCRIBING
        and isinstance(node.annotation, ast.Subscript)
        and getattr(node.annotation.value, "id", "") == "ClassVar"
        # A metric's family is stored with its scores; a method's is a text for pages.
        and getattr(node.annotation.slice, "id", "") != "Family"
    )


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but docstrings and what only type checkers read."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and _for_type_checkers(node.test):
            children = node.orelse
        waiting += [child for child in children if not _is_text(child)]


def _for_type_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    bound = {"bench"}
    attributes: list[tuple[str, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, ""
                if alias.name == "bench":
                    bound.add(alias.asname or "bench")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, node.module or "", alias.name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.append((node.value.id, node.attr))
    # `import bench` and then `bench.Method`.
    for name, attribute in attributes:
        if name in bound and attribute in bench.HOMES:
            yield 0, "bench", attribute
