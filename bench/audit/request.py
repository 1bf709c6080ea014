"""What an audit was asked for, and the keys that follow from it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, final

from bench.audit.canaries import canaries, many_canaries
from bench.audit.trials import Subject
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.code import code_hash
from bench.engine.fit import for_fitting
from bench.errors import InputError, NotApplicable
from bench.plugins import registry
from bench.plugins.method import Method
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.results.records import Variant

Kind = Literal["two-world", "one-run"]
KINDS: tuple[Kind, ...] = ("two-world", "one-run")

_COURSE = ("bench.audit.two_worlds", "bench.audit.one_run")
"""An audit depends on what these modules do, with all that they import from this room."""

FEWEST_TRIALS = 40
FEWEST_CANARIES = 10


@final
@dataclass(frozen=True)
class Request:
    """One audit of one method on one dataset."""

    method: Variant
    dataset: Variant
    epsilon: float | None
    trials: int
    kind: Kind = "two-world"
    ipc: int | None = 50
    full_size: bool = False
    delta: float = 1e-5
    seed: int = 0
    split: str = "default"
    split_seed: int = 0

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            Budget(self.epsilon, self.delta)  # refuses what is no budget
        fewest = FEWEST_TRIALS if self.kind == "two-world" else FEWEST_CANARIES
        what = "trials" if self.kind == "two-world" else "canaries (--trials)"
        if self.trials < fewest:
            raise InputError(
                f"{self.trials} {what} show nothing; a {self.kind} audit needs at least {fewest}"
            )
        if self.ipc is not None and self.ipc < 1:
            raise InputError(f"IPC {self.ipc} is not a positive number of rows per class")

    @functools.cached_property
    def built(self) -> Method:
        """The method with its parameters; a name that is not known is refused."""
        return registry.build_method(self.method.name, dict(self.method.parameters))

    def describe(self) -> str:
        """One line for people."""
        spend = "" if self.epsilon is None else f" at epsilon {self.epsilon:g}"
        return f"{self.method.label} on {self.dataset.label}{spend}"


@final
@dataclass(frozen=True)
class Prepared:
    """A request with its subject and keys."""

    request: Request
    method: Method
    dataset: Dataset
    source_hash: str
    key: str
    """Of the stored results: of everything they depend on, the rows as well."""
    subject: Subject


def make_request(
    method: str,
    dataset: str,
    epsilon: float | None,
    trials: int,
    *,
    parameters: dict[str, Any] | None = None,
    dataset_parameters: dict[str, Any] | None = None,
    ipc: int | None = 50,
    full_size: bool = False,
    **others: Any,
) -> Request:
    """A request by names; what the method has no use for (epsilon, IPC) is left out."""
    given = tuple(sorted((parameters or {}).items()))
    kind = type(registry.build_method(method, dict(given)))
    if kind.uses_budget and epsilon is None:
        raise InputError(f"method {method} spends a budget; say which epsilon to audit (--eps)")
    shown = ",".join(f"{key}={value}" for key, value in given)
    source = tuple(sorted((dataset_parameters or {}).items()))
    registry.build_source(dataset, dict(source))
    return Request(
        Variant(method, f"{method}({shown})" if shown else method, given),
        Variant(dataset, dataset, source),
        epsilon if kind.uses_budget else None,
        trials,
        ipc=ipc if kind.uses_ipc and not full_size else None,
        full_size=full_size and kind.uses_ipc,
        **others,
    )


def load(request: Request) -> Dataset:
    """The dataset of a request; what is wrong with it is the user's to mend."""
    source = registry.build_source(request.dataset.name, dict(request.dataset.parameters))
    return build_dataset(source, request.split, request.split_seed)


def prepare(request: Request, dataset: Dataset, method: Method | None = None) -> Prepared:
    """Subject and keys. `method` stands in for one that is no plugin (the known answers)."""
    built = method or request.built
    source_hash = keys.method_hash(type(built))
    identity = {
        "kind": request.kind,
        "method": [request.method.name, built.parameters()],
        "dataset": [request.dataset.name, request.dataset.parameters],
        "split": [request.split, request.split_seed],
        "epsilon": request.epsilon,
        "delta": request.delta,
        "ipc": [request.ipc, request.full_size],
        "trials": request.trials,
        "seed": request.seed,
    }
    # No row enters the seeds: numbers that depend on the table would distinguish two tables. Code
    # does not either, so that an edit of the method draws the same noise.
    seed_key = keys.hashed(identity)
    fitting = for_fitting(dataset)
    chosen = (
        canaries(dataset)
        if request.kind == "two-world"
        else many_canaries(dataset, request.trials, keys.generator(seed_key, "canaries"))
    )
    subject = Subject(
        built,
        fitting,
        request.ipc,
        None if request.epsilon is None else Budget(request.epsilon, request.delta),
        request.delta,
        seed_key,
        chosen,
        one_run=request.kind == "one-run",
    )
    key = keys.hashed(
        {
            **identity,
            "course": code_hash(*_COURSE),
            "source": source_hash,
            "libraries": {} if method is not None else keys.method_libraries(request.method.name),
            "fingerprint": dataset.fingerprint,
        }
    )
    return Prepared(request, built, dataset, source_hash, key, subject)


def check_applicable(method: Method) -> None:
    """Refuse methods whose guarantee is not about a row."""
    if method.unit:
        raise NotApplicable(
            f"its unit of privacy is the {method.unit}, and an audit plants one row: what it "
            "claims is not about rows"
        )
