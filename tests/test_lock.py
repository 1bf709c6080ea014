"""The lock of a release build holds the versions that were tested, each with a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
APART = {"torch", "xgboost"}
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_lock_and_the_constraints_agree() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = ENTRY.findall(text)
    locked = {name: version for name, version, _ in entries}
    assert len(entries) == len(locked) == text.count("==")
    assert locked == {name: version for name, version in pins().items() if name not in APART}
    assert len({digest for _, _, digest in entries}) == len(entries)
    assert all(f"#   {name}: " in text for name in APART), "what is left out has a reason"


def test_the_lock_names_neither_an_index_nor_a_folder() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"://|index|/\w+/", text.replace("PyTorch's own index", ""))


def test_every_dependency_is_pinned_and_the_pins_are_within_their_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, wanted):
        version = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_every_version_of_ray_that_is_allowed_asks_for_a_token() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (ray,) = (r for r in map(Requirement, project["dependencies"]) if r.name == "ray")
    # https://docs.ray.io/en/latest/ray-security/token-auth.html: "in Ray 2.52.0 or later".
    assert not ray.specifier.contains("2.51.99") and ray.specifier.contains("2.52.0")
