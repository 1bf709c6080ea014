"""What a key depends on: what the code does, and nothing else about it."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bench
from bench.engine import code, keys
from bench.engine.fit import fit_cell
from bench.plugins import registry
from bench.plugins.method import Environment
from bench.plugins.source import build_dataset
from bench.results.records import AuditSpec, Cell, Variant
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
CELL = Cell(
    Variant("ldpdc", "ldpdc", (("group_size", 20.0),)), Variant("toy-table", "toy"), 10, False, 1.0,
    1e-5, 0, "default", 0,
)  # fmt: skip

Edit = Callable[[str, Callable[[str], str]], None]


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Changes the source of a module, as far as keys can see."""
    read = code.read_source
    edits: dict[Path, Callable[[str], str]] = {}

    def edited(file: Path) -> bytes:
        change = edits.get(file)
        return read(file) if change is None else change(read(file).decode()).encode()

    def change(module: str, how: Callable[[str], str]) -> None:
        place = code._place(module, None)
        assert place is not None and place.file is not None
        text = read(place.file).decode()
        assert how(text) != text
        edits[place.file] = how
        code.forget()

    monkeypatch.setattr(code, "read_source", edited)
    yield change
    monkeypatch.undo()
    code.forget()


def more_code(text: str) -> str:
    return f"{text}\n_ADDED = 1\n"


def commented(text: str) -> str:
    return f"# A comment.\n{text}\n# Another.\n"


def documented(text: str) -> str:
    return text.replace('"""', '"""Now it says: ', 1) + '\n_ADDED = 1\n"""About it."""\n'


def reformatted(text: str) -> str:
    return ast.unparse(ast.parse(text))


def key_of(method: str) -> str:
    return keys.cell_key(replace(CELL, method=Variant(method, method)), "a")


# Editing the project ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    ["bench.methods.gats.gats", "bench.methods.gats._filter", "bench.privacy.kernel"],
)
def test_docstrings_comments_and_formatting_change_no_key(edit: Edit, module: str) -> None:
    before = key_of("gats")
    for how in (commented, reformatted):
        edit(module, how)
        assert key_of("gats") == before
    edit(module, more_code)
    with_code = key_of("gats")
    edit(module, documented)
    assert key_of("gats") == with_code != before


@pytest.mark.parametrize(
    "method, module",
    [
        ("gats", "bench.methods.gats.gats"),
        ("gats", "bench.methods.gats._filter"),
        ("gats", "bench.privacy.kernel"),
        ("gats", "bench.privacy.opening"),
        ("gats", "bench.data.encoder"),
        ("dm", "bench.data.augmentation"),
        ("dp-merf", "bench.methods._shared.generator"),
        ("mwem", "bench.privacy.trusted.mwem"),
        ("mst", "bench.privacy.trusted.smartnoise"),
        ("private-teacher-dc", "bench.privacy.trusted.ebm"),
    ],
)
def test_code_that_a_method_imports_changes_its_key(edit: Edit, method: str, module: str) -> None:
    before, other = key_of(method), key_of("real")
    edit(module, more_code)
    assert key_of(method) != before
    shared = module.startswith(("bench.privacy", "bench.data.encoder")) and "trusted" not in module
    assert (key_of("real") != other) is shared


def test_a_mechanism_that_is_not_delegated_to_does_not_count() -> None:
    modules = code.class_closure(registry.method_class("mst")).modules
    assert "bench.privacy.trusted.smartnoise" in modules
    assert "bench.privacy.trusted.ebm" not in modules
    assert "bench.privacy.trusted.mwem" not in modules


def test_all_mechanisms_count_where_it_cannot_be_seen_which_one_is_meant(edit: Edit) -> None:
    edit(
        "bench.methods.marginal.mst",
        lambda text: text.replace('"smartnoise-mst"', '"smartnoise-" + "mst"'),
    )
    modules = code.class_closure(registry.method_class("mst")).modules
    assert "bench.privacy.trusted.ebm" in modules


def test_rooms_that_run_and_show_results_do_not_count() -> None:
    for name in registry.method_names():
        for module in code.class_closure(registry.method_class(name)).modules:
            assert module.split(".")[1] not in code.UNCOUNTED_ROOMS, (name, module)


def test_metrics_depend_on_what_they_import(edit: Edit) -> None:
    before = keys.metric_hashes(("ks", "dcr"))
    assert before["ks"] != before["dcr"]
    edit("bench.metrics.fidelity._pooled", more_code)
    after = keys.metric_hashes(("ks", "dcr"))
    assert after["ks"] != before["ks"] and after["dcr"] == before["dcr"]


def test_the_room_of_the_module_that_is_asked_for_counts() -> None:
    modules = code.module_closure("bench.audit.two_worlds").modules
    assert {name for name in modules if name.startswith("bench.audit.")} > {
        "bench.audit.two_worlds"
    }
    assert not {name for name in modules if name.startswith(("bench.engine", "bench.cluster"))}
    assert code.code_hash("bench.audit.two_worlds") != code.code_hash("bench.audit.one_run")


def test_hashing_every_plugin_takes_a_moment() -> None:
    kinds = [registry.method_class(name) for name in registry.method_names()]
    metrics = [type(registry.metric(name)) for name in registry.metric_names()]
    code.forget()
    started = time.process_time()
    for kind in (*kinds, *metrics):
        assert code.class_closure(kind).digest
    assert time.process_time() - started < 5.0


# Trees ------------------------------------------------------------------------------------------


def digest(tmp_path: Path, text: str) -> str:
    path = tmp_path / f"m{abs(hash(text))}.py"
    path.write_text(text)
    return code._parsed(path).digest


def test_trees_are_the_same_without_what_only_people_read(tmp_path: Path) -> None:
    plain = "class A:\n    x: int = 1\n\n    def f(self):\n        return 'a' + u'b', -1.0\n"
    same = (
        '"""About."""\n# why\nclass A:\n    """A."""\n    x: int = 1\n    """Of x."""\n'
        "    def f(self):\n        'Says.'\n        return (\"a\" + 'b',\n            -1.)\n"
    )
    assert digest(tmp_path, plain) == digest(tmp_path, same)
    assert digest(tmp_path, "def f():\n    'a'") != digest(tmp_path, "def f():\n    return 'a'")


def test_fields_that_describe_a_plugin_do_not_count(tmp_path: Path) -> None:
    plain = "class A:\n    quick: ClassVar[dict] = {}\n"
    described = plain + "".join(
        f"    {name}: ClassVar[tuple[str, ...]] = ('adult',)\n" for name in sorted(code.DESCRIBING)
    )
    assert digest(tmp_path, plain) == digest(tmp_path, described)
    others = ("quick: ClassVar[dict] = {1: 2}", "title: str = 'a'", "family: ClassVar[Family] = 1")
    for line in others:
        assert digest(tmp_path, plain) != digest(tmp_path, f"{plain}    {line}\n")


@pytest.mark.parametrize(
    "one, two",
    [
        ("x = 1", "x = 1.0"),
        ("x = None", "x = ..."),
        ("f(a, b)", "f(b, a)"),
        ("x = 'a'", "x = b'a'"),
        ("from . import a", "from .. import a"),
        ("a < b", "a <= b"),
        ("{**a}", "{None: a}"),
        ("def f(*, a): ...", "def f(a): ..."),
    ],
)
def test_trees_that_do_other_things_differ(tmp_path: Path, one: str, two: str) -> None:
    assert digest(tmp_path, one) != digest(tmp_path, two)


@pytest.mark.parametrize(
    "text, names",
    [
        ("import torch.nn as nn, scipy", {"torch", "scipy"}),
        ("def f():\n    from sklearn.linear_model import Ridge", {"sklearn"}),
        ("from . import torch", set()),
        ("'import torch'", set()),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", {"typing"}),
    ],
)
def test_libraries_are_read_from_the_source(tmp_path: Path, text: str, names: set[str]) -> None:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    assert code.Closure({"plugin": code._parsed(path)}).libraries == names
    code.forget()


# Plugins of others --------------------------------------------------------------------------------

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

{imports}


@dataclass(frozen=True)
class Other(bench.Method):
    name: ClassVar[str] = "other"

    def synthesize(self, private, spec, rng):
        return scaled(rng)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, whose modules are forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    code.forget()


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()
    code.forget()


def other_hash(module: str) -> str:
    return keys.method_hash(importlib.import_module(module).Other)


def test_helpers_in_a_package_of_a_plugin(folder: Path) -> None:
    imports = "import bench\nfrom .deep import scaled"
    write(
        folder,
        elsewhere__method=PLUGIN.format(imports=imports),
        elsewhere__deep__helper="def scaled(rng):\n    return rng\n",
        elsewhere__unused="x = 1\n",
    )
    for package, text in (("elsewhere", ""), ("elsewhere/deep", "from .helper import scaled\n")):
        (folder / package / "__init__.py").write_text(text)
    before = other_hash("elsewhere.method")
    write(folder, elsewhere__deep__helper='def scaled(rng):\n    """Docs."""\n    return rng\n')
    write(folder, elsewhere__unused="x = 2\n")
    assert other_hash("elsewhere.method") == before
    write(folder, elsewhere__deep__helper="def scaled(rng):\n    return 2 * rng\n")
    assert other_hash("elsewhere.method") != before
    names = set(code.class_closure(sys.modules["elsewhere.method"].Other).modules)
    assert {"elsewhere", "elsewhere.deep", "elsewhere.deep.helper", "elsewhere.method"} <= names
    # `import bench` and then `bench.Method`.
    assert "bench.plugins.method" in names and "elsewhere.unused" not in names


def test_helpers_beside_a_single_file(folder: Path) -> None:
    write(
        folder,
        lone_method=PLUGIN.format(imports="import bench\nfrom lone_helper import scaled"),
        lone_helper="import numpy\n\ndef scaled(rng):\n    return rng\n",
    )
    before = other_hash("lone_method")
    write(folder, lone_helper="import numpy\n\ndef scaled(rng):\n    return 2 * rng\n")
    assert other_hash("lone_method") != before
    assert "numpy" in code.class_closure(sys.modules["lone_method"].Other).libraries


def test_all_modules_of_a_distribution_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = folder / "site-packages"
    monkeypatch.syspath_prepend(str(packages))
    information = packages / "two_modules-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: two-modules\nVersion: 1.0")
    (information / "entry_points.txt").write_text("[bench.methods]\nother = dist_method:Other\n")
    (information / "top_level.txt").write_text("dist_method\ndist_helper\n")
    imports = "import bench\nfrom dist_helper import scaled\nimport stranger"
    write(packages, dist_method=PLUGIN.format(imports=imports), stranger="x = 1")
    write(packages, dist_helper="def scaled(rng):\n    return rng\n")
    before = other_hash("dist_method")
    write(packages, stranger="x = 2")  # another distribution, which counts by its version
    assert other_hash("dist_method") == before
    write(packages, dist_helper="def scaled(rng):\n    return 2 * rng\n")
    assert other_hash("dist_method") != before


def test_where_a_plugin_is_installed_does_not_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PLUGIN.format(imports="import bench\nfrom moved_helper import scaled")
    hashes = []
    for place in ("one", "two"):
        write(folder / place, moved_method=text, moved_helper="def scaled(rng):\n    return rng\n")
        monkeypatch.syspath_prepend(str(folder / place))
        for name in ("moved_method", "moved_helper"):
            sys.modules.pop(name, None)
        hashes.append(other_hash("moved_method"))
    assert hashes[0] == hashes[1]


def test_public_names_are_found_at_home() -> None:
    for name, module in bench.HOMES.items():
        assert code._place(module, None) is not None, name


# Noise --------------------------------------------------------------------------------------------


def test_noise_is_the_same_after_an_edit_of_the_code(edit: Edit) -> None:
    before, key = fit_cell(CELL, DATASET).release, key_of("ldpdc")
    edit("bench.methods.ndpdc.ldpdc", more_code)
    after = fit_cell(CELL, DATASET).release
    assert key_of("ldpdc") != key
    assert before is not None and after is not None and before.rows is not None
    assert after.rows is not None and np.array_equal(before.rows.values, after.rows.values)


def test_the_seed_is_the_identity_of_a_cell() -> None:
    seed = keys.seed_of(CELL)
    labelled = replace(CELL, method=replace(CELL.method, label="another label"))
    assert keys.seed_of(labelled) == seed == keys.seed_of(replace(CELL, secure_noise=True))
    for changed in (
        replace(CELL, method=replace(CELL.method, parameters=())),
        replace(CELL, dataset=replace(CELL.dataset, parameters=(("negatives", 5),))),
        replace(CELL, dataset=replace(CELL.dataset, name="other")),
        replace(CELL, ipc=11),
        replace(CELL, ipc=None, full_size=True),
        replace(CELL, epsilon=2.0),
        replace(CELL, delta=1e-6),
        replace(CELL, seed=1),
        replace(CELL, split="paper"),
        replace(CELL, split_seed=1),
        replace(CELL, private_counts=True),
    ):
        assert keys.seed_of(changed) != seed


# Libraries ----------------------------------------------------------------------------------------


def test_an_audit_is_keyed_by_its_attack_and_the_code_of_it(edit: Edit) -> None:
    released = Cell(
        Variant("marginals", "marginals"), Variant("t", "t"), 10, False, 1.0, 1e-5, 0, "default", 0
    )
    # Releases of earlier versions keep their noise.
    assert keys.seed_of(released) == "afa2a02c1946068b8cb2"
    specs = (AuditSpec("two-world", 40), AuditSpec("two-world", 80), AuditSpec("one-run", 40))
    cells = [released, *(replace(released, audit=spec) for spec in specs)]
    before = [keys.cell_key(cell, "f") for cell in cells]
    seeds = [keys.seed_of(cell) for cell in cells]
    assert len(set(before)) == len(set(seeds)) == 4
    edit("bench.audit.one_run", more_code)
    after = [keys.cell_key(cell, "f") for cell in cells]
    assert after[:3] == before[:3] and after[3] != before[3]
    edit("bench.audit.scorers", more_code)
    assert keys.cell_key(cells[0], "f") == before[0]
    assert keys.cell_key(cells[1], "f") != before[1]
    assert [keys.seed_of(cell) for cell in cells] == seeds


def test_libraries_are_those_of_the_method_and_its_shared_files() -> None:
    installed = json.loads(keys.versions())
    assert keys.method_libraries("marginals") == {"numpy": installed["numpy"]}
    # Its torch is imported by a shared file, inside a function.
    assert keys.method_libraries("dp-merf")["torch"] == installed["torch"]
    for name in registry.method_names():
        libraries = keys.method_libraries(name)
        assert {"numpy"} <= set(libraries) <= set(installed) - {"ray", "dp-release-bench"}


def test_another_version_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_version(library: str, version: str) -> str:
        installed = {**json.loads(versions), library: version}
        monkeypatch.setattr(keys, "versions", lambda: json.dumps(installed))
        return keys.cell_key(CELL, "a")

    versions = keys.versions()
    key = keys.cell_key(CELL, "a")
    assert with_version("numpy", "99") != key
    assert with_version("xgboost-cpu", "99") == key
    assert with_version("ray", "99") == key


def test_what_an_environment_pins_is_not_taken_from_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = registry.method_class("gats")
    assert "scipy" in keys.method_libraries("gats")
    monkeypatch.setattr(kind, "environment", Environment("tiny", ("SciPy>=1,<2",), ()))
    assert "scipy" not in keys.method_libraries("gats")


def test_a_plugin_without_a_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Typed", (), {"__module__": "typed_at_a_prompt"})
    with pytest.raises(code.InputError, match="define plugins in a file"):
        code.class_closure(kind)
