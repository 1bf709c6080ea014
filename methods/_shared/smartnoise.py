"""Environment, typed errors and calibration of all methods that wrap smartnoise-synth."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from bench import BenchError, Budget, Environment, NotApplicable, Spec, Task

SMARTNOISE = Environment(
    "smartnoise",
    (
        "smartnoise-synth==1.0.8",
        "mbi==1.1.0",
        "opendp==0.14.2",
        "diffprivlib==0.6.6",
        "scikit-learn>=1.7,<1.8",
        "setuptools<81",
    ),
    ("snsynth", "diffprivlib"),
)
"""opacus 0.14, which smartnoise-synth pins, cannot share an environment with ours. mbi counts and
opendp draws the noise: `bench.privacy.trusted.table` vouches for these versions only."""


@contextlib.contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Whatever the library raises becomes an error of ours that names it."""
    try:
        yield
    except (BenchError, MemoryError):
        raise
    except Exception as problem:
        raise BenchError(
            f"{what} of smartnoise-synth failed with {type(problem).__name__}: {problem}"
        ) from problem


def budget_of(spec: Spec, what: str) -> Budget:
    """Budget that the library gets; without one, or for images, the method does not apply."""
    if spec.task is Task.IMAGE:
        raise NotApplicable(f"{what} of smartnoise-synth is for tables, not for images")
    if spec.budget is None:
        raise NotApplicable(f"{what} needs an epsilon: it stops when that is spent")
    return spec.budget


def check_first_step(budget: Budget, share: float, orders: int) -> None:
    """Refuse an epsilon that the library's accountant states before the first step."""
    epsilon, least = share * budget.epsilon, math.log(1.0 / budget.delta) / orders
    if epsilon <= least:
        raise NotApplicable(
            f"the library's accountant states epsilon {least:.3g} before the first step (delta "
            f"{budget.delta:g}, orders up to {orders}), and {epsilon:.3g} was asked for"
        )


def votes_allowed(budget: Budget, share: float, steps: int, orders: int, noise: float) -> float:
    """Votes per step at which the library's moments accountant allows `steps` steps.

    With Laplace noise of scale s and v votes per step it states, after k steps, the least over
    whole orders l of (2 k v l (l + 1) / s^2 + ln(1 / delta)) / l (Papernot et al. 2017, Theorems 1
    and 2). It loops until its epsilon is spent and has no parameter for the number of steps, so
    that v or s has to be chosen for it. An epsilon that it states before the first step is refused.
    """
    epsilon, constant = share * budget.epsilon, math.log(1.0 / budget.delta)
    check_first_step(budget, share, orders)
    cost = max(
        (epsilon - constant / order) / (steps * (order + 1)) for order in range(1, orders + 1)
    )
    return cost * noise**2 / 2.0


def vote_noise(budget: Budget, share: float, steps: int, votes: int, orders: int) -> float:
    """Scale of the noise on `votes` votes per step that allows `steps` steps."""
    return math.sqrt(votes / votes_allowed(budget, share, steps, orders, noise=1.0))
