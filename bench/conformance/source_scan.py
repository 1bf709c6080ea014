"""Reads a method's source for what the kernel cannot see: a look at names, not a proof."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from bench.conformance.findings import Finding, Outcome
from bench.conformance.subject import Subject

_GLOBAL_SEEDS = ("seed", "manual_seed", "set_rng_state")
_GLOBAL_OWNERS = ("np.random", "numpy.random", "torch", "torch.random", "torch.cuda", "random")
_LEGACY = {
    "rand",
    "randn",
    "randint",
    "normal",
    "uniform",
    "choice",
    "permutation",
    "shuffle",
    "random",
}
_FORBIDDEN_MODULES = {"pickle", "random", "secrets"}


def reads_clean(subject: Subject) -> Iterator[Finding]:
    """No underscored attribute of `private`, no global generator, no file, no private module."""
    path = inspect.getsourcefile(subject.kind)
    if path is None:
        yield Finding("source", Outcome.NOT_CHECKED, "its source cannot be found")
        return
    problems = list(suspicious(Path(path).read_text(encoding="utf-8")))
    yield Finding(
        "source",
        Outcome.FAILED if problems else Outcome.PASSED,
        "\n".join(f"line {line}: {text}" for line, text in problems)
        or f"{Path(path).name} was read",
        "private rows, their noise and their sampling are the kernel's; public randomness is `rng`",
    )


def suspicious(source: str) -> Iterator[tuple[int, str]]:
    """Lines that reach around the kernel or around the generators that are passed in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node)
        elif isinstance(node, ast.Import):
            yield from (
                (node.lineno, f"imports {item.name}")
                for item in node.names
                if item.name.split(".")[0] in _FORBIDDEN_MODULES
            )
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            if module[0] in _FORBIDDEN_MODULES:
                yield node.lineno, f"imports from {node.module}"
            elif node.module == "bench.privacy.noise" or any(n.name == "Vault" for n in node.names):
                yield node.lineno, f"imports {node.module}: noise belongs to the kernel"


def _attribute(node: ast.Attribute) -> Iterator[tuple[int, str]]:
    text = ast.unparse(node)
    owner = ast.unparse(node.value)
    hidden = node.attr.startswith("_") and not node.attr.startswith("__")
    if hidden and owner.split(".")[0] not in ("self", "cls"):
        yield node.lineno, f"{text}: an underscored attribute of something else"
    # `torch.Generator().manual_seed(...)` seeds a generator of its own: that is how to do it.
    if node.attr in _GLOBAL_SEEDS and owner in _GLOBAL_OWNERS:
        yield node.lineno, f"{text}: a global seed"
    if owner in ("np.random", "numpy.random") and node.attr in _LEGACY:
        yield node.lineno, f"{text}: numpy's global generator"
    if text == "os.urandom":
        yield node.lineno, f"{text}: randomness that no seed repeats"
