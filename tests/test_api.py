"""The public API: every name loads, type checkers see the same, and importing it costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import bench
from tests.support.places import ROOT

HEAVY = {"numpy", "pandas", "torch", "ray", "mlflow", "scipy"}


def loaded_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after running the code."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", bench.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(bench, name) is not None
    assert name in dir(bench)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bench.nothing  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "bench" / "__init__.pyi").read_text(encoding="utf-8"))
    declared = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    public = {
        name: home if home.endswith(f".{name}") else f"{home}.{name}"
        for name, home in bench.HOMES.items()
    }
    assert declared == public


def test_no_name_is_public_twice() -> None:
    names = [name for listed in bench.PUBLIC.values() for name in listed.split()]
    assert len(names) == len(set(names)) == len(bench.__all__)


def test_importing_the_package_loads_no_third_party_module() -> None:
    extra = loaded_after("import bench") - loaded_after("pass")
    assert extra - sys.stdlib_module_names == {"bench"}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "from bench.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not HEAVY & loaded_after(code)
