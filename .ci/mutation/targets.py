"""What is mutated, and which tests are run against it.

A room is measured by its own tests, and by those of the commands that read hostile run directories
where the room's task is to refuse them: a fault that only a far-away test notices by chance counts
as a survivor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SEED = 1
_QUICK = "not slow and not isolated and not chaos"


@dataclass(frozen=True)
class Target:
    """Modules, and the tests that must notice a fault in them."""

    name: str
    folder: str
    tests: tuple[str, ...]
    sample: int | None = None
    """Number of mutants, drawn at random; None for all."""
    only: tuple[str, ...] = ()
    """Names of modules in the folder; empty for all."""
    without: tuple[str, ...] = ()
    environment: str = ""
    """Environment of methods with conflicting packages that the tests run in; empty for ours."""
    markers: str = _QUICK

    def modules(self, root: Path) -> list[str]:
        """Return the paths of the modules, relative to the repository."""
        found = sorted((root / self.folder).rglob("*.py"))
        return [
            str(path.relative_to(root))
            for path in found
            if (not self.only or path.name in self.only) and path.name not in self.without
        ]


_LIBRARIES = ("smartnoise.py", "mwem.py")

TARGETS = {
    target.name: target
    for target in (
        Target("privacy", "bench/privacy", ("tests/privacy",), without=_LIBRARIES),
        Target(
            "privacy-smartnoise",
            "bench/privacy/trusted",
            ("tests/privacy", "tests/methods/marginal"),
            only=_LIBRARIES,
            environment="smartnoise",
            markers="not slow and not chaos",
        ),
        Target(
            "results",
            "bench/results",
            ("tests/results", "tests/engine", "tests/cli/test_tampered.py"),
            sample=160,
        ),
        Target("engine", "bench/engine", ("tests/engine",), sample=160),
    )
}
