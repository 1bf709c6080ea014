"""The table of trusted mechanisms names the versions that are installed and pinned."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import replace

import pytest

from bench import gaussian
from bench.errors import PrivacyContractError, UnknownNameError
from bench.plugins import registry
from bench.privacy.trusted.table import TABLE, TrustedMechanism, find
from tests.support.places import ROOT

ENTRY = TrustedMechanism(
    "count", "numpy", ("1", "2"), lambda _: gaussian(6.0), lambda r, e, g, p: None
)


def pins() -> dict[str, set[str]]:
    """Versions by package: those of our environment, and those of methods with their own."""
    known: dict[str, set[str]] = {}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for name in registry.method_names():
        environment = registry.method_class(name).environment
        lines += environment.requirements if environment is not None else ()
    for line in lines:
        if found := re.fullmatch(r"([A-Za-z0-9-]+)==(\S+)", line):
            known.setdefault(found[1], set()).add(found[2])
    return known


def test_every_entry_is_checked_in_the_versions_that_are_pinned() -> None:
    pinned = pins()
    for name, entry in TABLE.items():
        assert entry.name == name and find(name) is entry and not entry.plugin
        assert set(entry.versions) == pinned[entry.library]
        for package, version in entry.below:
            assert pinned[package] == {version}


def test_the_libraries_of_other_environments_name_what_draws_their_noise() -> None:
    """OpenDP draws it for all three; MST and AIM count with mbi."""
    below = {name: {package for package, _ in find(name).below} for name in TABLE}
    assert below == {
        "smartnoise-mst": {"opendp", "mbi"},
        "smartnoise-aim": {"opendp", "mbi"},
        "smartnoise-mwem": {"opendp"},
        "interpret-dp-ebm": set(),
    }


def test_the_installed_version_decides() -> None:
    installed = importlib.metadata.version("numpy")
    assert ENTRY.installed_version() == installed and ENTRY.trust == f"numpy {installed}"
    assert ENTRY.unchecked() == (
        f"numpy {installed} is not among the versions whose privacy was checked (1, 2)"
    )
    listed = replace(ENTRY, versions=("1", installed))
    assert listed.unchecked() == ""
    scipy = importlib.metadata.version("scipy")
    assert replace(listed, below=(("scipy", scipy),)).unchecked() == ""
    assert replace(listed, below=(("scipy", "0.1"),)).unchecked() == (
        f"scipy {scipy} is not among the versions whose privacy was checked (0.1)"
    )
    assert replace(ENTRY, plugin="mine").trust == "mine"


def test_a_missing_library_is_named_with_its_versions() -> None:
    missing = replace(ENTRY, library="no-such-package")
    for ask in (missing.installed_version, missing.unchecked, lambda: missing.trust):
        with pytest.raises(PrivacyContractError, match="needs the package 'no-such-package'") as no:
            ask()
        assert "versions 1, 2" in str(no.value)


def test_an_entry_outside_the_table_names_its_plugin() -> None:
    mine = replace(ENTRY, plugin="mine")
    assert find(mine) is mine
    with pytest.raises(PrivacyContractError, match="must name the plugin"):
        find(ENTRY)
    with pytest.raises(UnknownNameError):
        find("nonsense")
