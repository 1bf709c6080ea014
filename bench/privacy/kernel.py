"""`PrivateData`: the only way from a method to the private rows.

Every call adds its noise **and** records its DP event in one step. The kernel guards against
mistakes, not malice: a plugin that reads private attributes is refused in review, not here.

Sensitivities under add/remove of one row, each stated and used in the method of that name:

| call | sensitivity | event |
|---|---|---|
| `poisson_sum` | clip (L2) | Gaussian on a Poisson sample |
| `gaussian_sum` | clip (L2) | Gaussian |
| `histograms` of k binnings | sqrt(k) (L2) or k (L1) | Gaussian or Laplace |
| `marginals` of k sets of columns | sqrt(k) (L2) | Gaussian |
| `scores` of candidates | root of the sum of their squares (L2; `selection.py`) | Gaussian |
| `select` | the largest of the candidates' (`selection.py`) | exponential mechanism, as zCDP |
| `partition_sum`, `part_vectors` | 2 clip (L2) | Gaussian, charged to the whole |
| `delegate` | as the entry in `trusted/table.py` proves | the entry's event |
| `raw` | unbounded | non-private |

Every function that reads rows gets a copy of them: what it writes, through torch for example, is
seen by no later call. Vectors of rows are evaluated and checked in `rowwise.py`, clipped, rounded
and summed in `grid.py`; noise is sampled in `noise.py`; one of several candidates is chosen in
`selection.py`; rows are assigned to parts in `partition.py`; the events are recorded in
`ledger.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from bench.data.dataset import Counts
from bench.data.encoder import EncodedRows, Encoder
from bench.data.schema import Schema, Task
from bench.errors import BudgetExceededError, PrivacyContractError
from bench.privacy.accounting import Budget, calibrate_noise
from bench.privacy.clients import SkewedClients
from bench.privacy.events import (
    DpEvent,
    exponential,
    gaussian,
    in_words,
    laplace,
    non_private,
    sampled_gaussian,
)
from bench.privacy.grid import Grid, Integers
from bench.privacy.interception import Call, Interceptor, PassThrough
from bench.privacy.ledger import Entry, Ledger, PartPath
from bench.privacy.noise import NoiseSource
from bench.privacy.partition import (
    PartKey,
    PartModels,
    check_part_by_row,
    part_label,
    part_names,
    row_parts,
    same_parts,
)
from bench.privacy.rowwise import RowFunction, as_numbers, counted, evaluate, positive
from bench.privacy.selection import (
    CodedRows,
    Dependence,
    Distance,
    check_candidates,
    digest,
    draw,
    exponents,
    on_grid,
)
from bench.privacy.trusted import table as trusted

Vector = npt.NDArray[np.float64]

_SLACK = 1.0 + 1e-9
"""Budget comparisons tolerate rounding of this size."""


@final
@dataclass(frozen=True)
class PlannedEvents:
    """Events of the calls that a method intends to make on one part of the data."""

    path: PartPath
    event: DpEvent
    count: int = 1


@final
@dataclass
class Vault:
    """Ledger, noise and reservations that all views of one private table share."""

    ledger: Ledger
    noise: NoiseSource
    check_rows: bool = False
    interceptor: Interceptor = field(default_factory=PassThrough)
    """For checks of methods: sees and may replace what noisy calls compute."""
    public_entropy: int = 0
    """Seed of public randomness inside the kernel."""
    started: bool = False
    """True once an output has left the kernel: later parameters may depend on it."""
    reserved: dict[tuple[PartPath, DpEvent], int] = field(default_factory=dict)

    def refuse_for_clients(self) -> None:
        """Refuse noise that hides a row where the unit of privacy is a client."""
        if self.ledger.unit == "client":
            raise PrivacyContractError(
                "the method's unit of privacy is the client: only noisy sums over the parts of all "
                "clients (or sites) hide a whole one; use `partition_sum` on their models"
            )


@final
class PrivateData:
    """Private rows behind noisy, recorded calls; a part of a partition is a `PrivateData` too.

    Public attributes are public knowledge: schema, encoder, declared counts, budget.
    """

    def __init__(
        self,
        rows: EncodedRows,
        encoder: Encoder,
        counts: Counts,
        vault: Vault,
        path: PartPath,
        validation: PrivateData | None = None,
    ) -> None:
        self._rows = rows
        self._vault = vault
        self._path = path
        self._partitions: dict[str, tuple[PartKey, tuple[str, ...], dict[str, PrivateData]]] = {}
        self.encoder = encoder
        self.counts = counts
        self.validation = validation
        """The validation rows: private as well, behind the same ledger."""

    @property
    def schema(self) -> Schema:
        """Public schema of the rows."""
        return self.encoder.schema

    @property
    def task(self) -> Task:
        """Task of the dataset."""
        return self.schema.task

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return self.encoder.width

    @property
    def budget(self) -> Budget | None:
        """Total budget of the release; None for a method that asks for none."""
        return self._vault.ledger.budget

    @property
    def adaptive(self) -> bool:
        """True once a call has returned an output: later reservations are accounted as adaptive."""
        return self._vault.started

    def rate(self, expected: float) -> float:
        """Poisson rate for an expected sample size: min(1, L / declared count)."""
        return min(1.0, expected / max(1, self.counts.total))

    # Budget -------------------------------------------------------------------------------------

    def plan(self, event: DpEvent, count: int = 1) -> PlannedEvents:
        """Return `count` times `event` on these rows, to be calibrated or reserved later."""
        return PlannedEvents(self._path, event, count)

    def calibrate(
        self, plans: Callable[[float], Iterable[PlannedEvents]], epsilon: float | None = None
    ) -> float:
        """Return the smallest noise multiplier s such that all of `plans(s)` fit the budget.

        Events already in the ledger are counted. `epsilon` asks for a smaller total than the
        budget, to leave room for later calls.
        """
        budget = self.budget
        if budget is None:
            raise PrivacyContractError("calibrate needs a budget; this cell has no epsilon")

        def spent(noise: float, tight: bool) -> float:
            return self._with_planned(plans(noise)).spent(tight)[0]

        return calibrate_noise(
            epsilon_of=lambda noise: spent(noise, tight=True),
            target=min(epsilon or math.inf, budget.epsilon),
            quick=None if self.adaptive else lambda noise: spent(noise, tight=False),
        )

    def _with_planned(self, plans: Iterable[PlannedEvents], trust: str = "") -> Ledger:
        return self._vault.ledger.with_entries(
            (Entry(plan.path, plan.event, self.adaptive, trust=trust), plan.count)
            for plan in plans
            if plan.count != 0
        )

    def reserve(self, event: DpEvent, count: int = 1) -> None:
        """Charge `count` calls before the first of them, or refuse them all."""
        self.reserve_all([self.plan(event, count)])

    def reserve_all(self, plans: Iterable[PlannedEvents]) -> None:
        """Check the budget once and charge all planned events, or refuse them all.

        The charge stays even if the calls are never made, so a lost process stays charged. Only
        events reserved before the first output may be accounted by PLD.
        """
        plans = [plan for plan in plans if plan.count != 0]
        self._admit(plans)
        for plan in plans:
            key = (plan.path, plan.event)
            self._vault.reserved[key] = self._vault.reserved.get(key, 0) + plan.count

    def _admit(self, plans: Iterable[PlannedEvents], trust: str = "") -> None:
        vault = self._vault
        plans = list(plans)
        budget = vault.ledger.budget
        if budget is not None:
            epsilon, _ = self._with_planned(plans, trust).spent()
            if epsilon > budget.epsilon * _SLACK:
                asked = "; ".join(f"{plan.count} x {in_words(plan.event)}" for plan in plans)
                raise BudgetExceededError(
                    f"{asked} would bring epsilon to {epsilon:.4g}, over the budget of "
                    f"{budget.epsilon:g} at delta {budget.delta:g}; nothing was computed. Ask "
                    "`calibrate` for the noise, or make fewer calls"
                )
        for plan in plans:
            entry = Entry(plan.path, plan.event, vault.started, trust=trust)
            vault.ledger.add(entry, plan.count)

    def _charge(self, event: DpEvent) -> None:
        vault = self._vault
        key = (self._path, event)
        left = vault.reserved.get(key, 0)
        if left > 0:
            vault.reserved[key] = left - 1
        else:
            self._admit([self.plan(event)])
        vault.started = True

    # Noisy answers ------------------------------------------------------------------------------

    def poisson_sum(
        self, function: RowFunction, clip: float, noise_multiplier: float, rate: float
    ) -> Vector:
        """Return the noisy sum of clipped per-row vectors over a Poisson sample.

        The answer is the sum over sampled i of v_i min(1, clip / |v_i|) + N(0, (noise_multiplier
        clip)^2 I): the sampled Gaussian mechanism, of sensitivity `clip`. DP-SGD is this call with
        per-example gradients.
        """
        # Python floats: in a smaller number type the noise would not have the recorded scale.
        clip, noise_multiplier, rate = positive(clip), positive(noise_multiplier), positive(rate)
        if rate > 1.0:
            raise PrivacyContractError(f"sampling rate {rate} is not in (0, 1]")
        self._vault.refuse_for_clients()
        self._charge(sampled_gaussian(rate, noise_multiplier))
        call = Call("poisson_sum", self._path, noise_multiplier, clip, rate)
        rows, sampled = self._rows, rate < 1.0
        if sampled:
            drawn = self._vault.noise.poisson_sample(len(rows), rate)
            rows = rows.take(self._vault.interceptor.sample(call, rows, drawn))
        return self._noisy_sum(function, rows, call, copied=sampled)

    def gaussian_sum(self, function: RowFunction, clip: float, noise_multiplier: float) -> Vector:
        """Return the noisy sum of clipped per-row vectors over all rows.

        The Gaussian mechanism, of sensitivity `clip`.
        """
        clip, noise_multiplier = positive(clip), positive(noise_multiplier)
        self._vault.refuse_for_clients()
        self._charge(gaussian(noise_multiplier))
        call = Call("gaussian_sum", self._path, noise_multiplier, clip)
        return self._noisy_sum(function, self._rows, call)

    def _noisy_sum(
        self, function: RowFunction, rows: EncodedRows, call: Call, copied: bool = False
    ) -> Vector:
        vectors = self._evaluate(function, rows, call, copied)
        grid = Grid.of(call.noise_multiplier * call.clip, call.clip, vectors.shape[1])
        return self._noisy(call, grid, grid.sum(vectors, call.clip), self._vault.noise.normal)

    def _noisy(
        self, call: Call, grid: Grid, integers: Integers, draw: Callable[[float, int], Integers]
    ) -> Vector:
        """Add noise to the exact integers of an answer."""
        self._vault.interceptor.exact(call, grid, integers)
        return self._vault.interceptor.answer(call, grid.answer(integers, draw))

    def _evaluate(
        self, function: RowFunction, rows: EncodedRows, call: Call, copied: bool = False
    ) -> Vector:
        vectors = evaluate(function, rows, self._vault.check_rows, copied)
        return self._vault.interceptor.vectors(call, rows, vectors)

    def histograms(
        self,
        codes: RowFunction,
        bins: Sequence[int],
        noise_multiplier: float,
        mechanism: Literal["gaussian", "laplace"] = "gaussian",
    ) -> list[Vector]:
        """Return noisy counts of several binnings.

        `codes` maps n rows to an (n, k) array of bin numbers, one column per binning; numbers out
        of range are not counted. One row moves one count in each of k binnings by one: the
        sensitivity, which scales the noise, is sqrt(k) in L2 (Gaussian) and k in L1 (Laplace).
        """
        noise_multiplier = positive(noise_multiplier)
        binnings = len(bins)
        event = gaussian if mechanism == "gaussian" else laplace
        self._vault.refuse_for_clients()
        self._charge(event(noise_multiplier))
        call = Call(
            "histograms", self._path, noise_multiplier, bins=tuple(bins), mechanism=mechanism
        )
        table = self._evaluate(codes, self._rows, call)
        if table.shape[1] != binnings:
            raise PrivacyContractError(
                f"the bin function returned {table.shape[1]} columns for {binnings} binnings"
            )
        if mechanism == "gaussian":
            scale, draw = noise_multiplier * math.sqrt(binnings), self._vault.noise.normal
        else:
            scale, draw = noise_multiplier * binnings, self._vault.noise.laplace
        grid = Grid.of_counts(scale)
        answers: list[Vector] = []
        for column, size in enumerate(bins):
            counts = grid.counts(counted(table[:, column], size))
            answers.append(self._noisy(call, grid, counts, draw))
        return answers

    # Coded rows ---------------------------------------------------------------------------------

    def coded(self, codes: RowFunction, sizes: Sequence[int]) -> CodedRows:
        """Return the rows as codes of a public domain, for `marginals` and `select`.

        `codes` maps n rows to an (n, k) array of codes, one column for each of `sizes`; a row with
        a code out of range is in no table of that column. The codes stay inside the kernel: no
        budget is spent until something is asked of them.
        """
        sizes = tuple(int(size) for size in sizes)
        if not sizes or min(sizes) < 1:
            raise PrivacyContractError(f"sizes {sizes}: expected one or more codes per column")
        self._vault.refuse_for_clients()
        table = self._evaluate(codes, self._rows, Call("coded", self._path, bins=sizes))
        if table.shape[1] != len(sizes):
            raise PrivacyContractError(
                f"the code function returned {table.shape[1]} columns for {len(sizes)} sizes"
            )
        return CodedRows(self, table, sizes)

    def marginals(
        self,
        rows: CodedRows,
        sets: Sequence[Sequence[int]],
        noise_multiplier: float,
        weights: Sequence[float] | None = None,
    ) -> list[npt.NDArray[np.float64]]:
        """Return noisy counts of the cells of several sets of columns, one axis per column.

        One row moves one cell of each of k tables by one: the sensitivity, which scales the noise,
        is sqrt(k) in L2. The noise on a count has the deviation sqrt(k) noise_multiplier. With
        `weights`, the mechanism answers the tables w_i N_i, of sensitivity |w|_2, and divides by
        w_i: the deviation of table i is noise_multiplier |w|_2 / w_i, and the event is the same.
        """
        noise_multiplier = positive(noise_multiplier)
        chosen = [self._own(rows).checked(columns) for columns in sets]
        if not chosen:
            raise PrivacyContractError("no set of columns to count")
        what = f"gaussian, {chosen}"
        if weights is None:
            scales = [noise_multiplier * math.sqrt(len(chosen))] * len(chosen)
        else:
            shares = [positive(float(weight)) for weight in weights]
            if len(shares) != len(chosen):
                raise PrivacyContractError(f"{len(shares)} weights for {len(chosen)} tables")
            what = f"{what}, weights {shares}"
            # Rounded up: the noise is at least what is recorded.
            norm = math.hypot(*shares) * (1.0 + 2.0**-40)
            scales = [noise_multiplier * norm / share for share in shares]
        self._charge(gaussian(noise_multiplier))
        call = Call("marginals", self._path, noise_multiplier, mechanism=what)
        answers: list[npt.NDArray[np.float64]] = []
        for columns, scale in zip(chosen, scales, strict=True):
            grid = Grid.of_counts(scale)
            noisy = grid.answer(grid.counts(rows._count(columns)), self._vault.noise.normal)
            answers.append(self._vault.interceptor.answer(call, noisy))
        return answers

    def select(
        self, rows: CodedRows, candidates: Sequence[Distance | Dependence], epsilon: float
    ) -> int:
        """Return the place of a candidate with a nearly largest score.

        The exponential mechanism: candidate c has a probability proportional to
        exp(epsilon q_c / (2 D)), where D is the largest sensitivity of the candidates' scores. Its
        event is `exponential(epsilon)`.
        """
        epsilon = positive(epsilon)
        check_candidates(self._own(rows), candidates)
        self._charge(exponential(epsilon))
        what = f"exponential, epsilon {epsilon!r}, {len(candidates)} candidates"
        call = Call("select", self._path, mechanism=f"{what}, {digest(candidates)}")
        weights = exponents(rows, candidates, epsilon)
        self._vault.interceptor.choosing(call, weights)
        chosen = draw(weights, self._vault.noise.words)
        answer = self._vault.interceptor.answer(call, np.array([chosen], dtype=np.float64))
        return int(answer[0])

    def scores(
        self,
        rows: CodedRows,
        candidates: Sequence[Distance | Dependence],
        noise_multiplier: float,
    ) -> Vector:
        """Return the noisy scores of all candidates.

        The Gaussian mechanism: the sensitivity in L2, which scales the noise, is the root of the
        sum of the squared sensitivities of the scores.
        """
        noise_multiplier = positive(noise_multiplier)
        check_candidates(self._own(rows), candidates)
        self._charge(gaussian(noise_multiplier))
        what = f"gaussian, {len(candidates)} candidates, {digest(candidates)}"
        call = Call("scores", self._path, noise_multiplier, mechanism=what)
        total = math.sqrt(sum(float(one.sensitivity) ** 2 for one in candidates))
        grid = Grid.of(noise_multiplier * total, total, len(candidates))
        # Rounding to the grid can move each score by half a step in both of two neighbours.
        rounding = 2.0**grid.exponent * math.sqrt(len(candidates))
        grid = Grid(grid.exponent, noise_multiplier * (total + rounding) * (1.0 + 2.0**-40))
        exact = on_grid([one.score(rows) for one in candidates], grid.exponent)
        self._vault.interceptor.exact(call, grid, exact)
        answer = grid.answer(exact, self._vault.noise.normal)
        return self._vault.interceptor.answer(call, answer)

    def _own(self, rows: CodedRows) -> CodedRows:
        if rows._owner is not self:
            raise PrivacyContractError("these codes are of other private data")
        return rows

    # Parts --------------------------------------------------------------------------------------

    def partition(
        self,
        key: PartKey,
        public_keys: Sequence[str] | None = None,
        *,
        name: str = "",
        parts: int | None = None,
    ) -> Mapping[str, PrivateData]:
        """Return disjoint parts, accounted in parallel: a row pays in its own part only.

        `key` is "class", "site", a name with `parts=k` for k random parts fixed by the Dataset
        ("teacher", ...), `SkewedClients`, or a row-wise function with a `name` and its
        `public_keys`. Parts follow the public keys, not the rows: an absent class is an empty part,
        whose answers are noise. Valid for add/remove adjacency.
        """
        names = part_names(self.schema, key, public_keys, parts)
        label = part_label(key, name, parts)
        earlier = self._partitions.get(label)
        if earlier is None:
            classes = self.schema.classes
            where = "/".join(f"{name}={part}" for name, part in (*self._path, (label, "")))
            codes = row_parts(self._rows, key, names, parts, len(classes), where)
            if self._vault.check_rows:
                check_part_by_row(self._rows, codes, key, names, parts, len(classes), where)
            pieces = {
                part: PrivateData(
                    self._rows.take(codes == code),
                    self.encoder,
                    key.part_counts(self.counts, code)
                    if isinstance(key, SkewedClients)
                    else self.counts.part(label, part, classes, len(names)),
                    self._vault,
                    (*self._path, (label, part)),
                )
                for code, part in enumerate(names)
            }
            earlier = self._partitions[label] = (key, names, pieces)
        elif earlier[:2] != (key, names):
            # Under one name a row could lie in a part of each and pay for one only.
            raise PrivacyContractError(
                f"another partition is already called {label!r}; choose another name for this one"
            )
        return MappingProxyType(earlier[2])

    def fit_parts(
        self,
        parts: Mapping[str, PrivateData],
        fit: Callable[[EncodedRows, np.random.Generator], Any],
    ) -> PartModels:
        """Fit one model on each part; no budget is spent until `partition_sum` queries them.

        `fit` receives the rows of its part and a separate generator: how much randomness the rows
        of one part consume must not change the model of another part.
        """
        whole = next(
            (key for key, _, pieces in self._partitions.values() if same_parts(pieces, parts)), None
        )
        if whole is None:
            raise PrivacyContractError(
                "models are fitted on one whole partition of this private data, as `partition` "
                "returned it: a row in two parts would move two votes"
            )
        rows = {name: part._rows for name, part in parts.items()}
        clients = whole == "site" or isinstance(whole, SkewedClients)
        return PartModels(self, rows, fit, self._vault.public_entropy, clients)

    def partition_sum(
        self,
        models: PartModels,
        answer: Callable[[Any], Any],
        clip: float,
        noise_multiplier: float,
    ) -> npt.NDArray[np.float64]:
        """Return the noisy sum of one vector per part, such as votes of teachers fitted on parts.

        Adding or removing one row can replace one part's whole vector by another of norm at most
        `clip`: the sensitivity is 2 clip, the noise has standard deviation 2 clip noise_multiplier,
        and the event is charged to the whole, not to a part.
        """
        clip, noise_multiplier = positive(clip), positive(noise_multiplier)
        call = Call("partition_sum", self._path, noise_multiplier, clip)
        shape, vectors = self._answers(models, answer, call)
        grid = Grid.of(2.0 * clip * noise_multiplier, clip, vectors.shape[1])
        total = grid.sum(vectors, clip)
        return self._noisy(call, grid, total, self._vault.noise.normal).reshape(shape)

    def part_vectors(
        self,
        models: PartModels,
        answer: Callable[[Any], Any],
        clip: float,
        noise_multiplier: float,
    ) -> npt.NDArray[np.float64]:
        """Return a noisy vector of every part, one row per part, such as one chosen record of each.

        Adding or removing one row moves the vector of one part alone, by at most 2 clip: all of
        them together are one Gaussian mechanism of sensitivity 2 clip, charged to the whole.
        """
        clip, noise_multiplier = positive(clip), positive(noise_multiplier)
        call = Call("part_vectors", self._path, noise_multiplier, clip)
        _, vectors = self._answers(models, answer, call)
        grid = Grid.of(2.0 * clip * noise_multiplier, clip, vectors.shape[1])
        rows = np.stack([grid.sum(vector[None], clip) for vector in vectors])
        return self._noisy(call, grid, rows, self._vault.noise.normal)

    def _answers(
        self, models: PartModels, answer: Callable[[Any], Any], call: Call
    ) -> tuple[tuple[int, ...], Vector]:
        """Charge the event, then return the shape of an answer and one flat vector per part."""
        if models._owner is not self:
            raise PrivacyContractError("these models were fitted on parts of other private data")
        if not (models.clients and len(self._path) == 1):
            self._vault.refuse_for_clients()
        self._charge(gaussian(call.noise_multiplier))
        vectors = [as_numbers(value, "answer of a part") for value in models._ask(answer)]
        shape = vectors[0].shape
        if any(vector.shape != shape for vector in vectors):
            # The message has no shape: which one a part has can depend on its rows.
            raise PrivacyContractError(
                "the parts answered with vectors of different lengths; expected one length that "
                "follows from public knowledge, also for a part without rows"
            )
        flat = np.stack([vector.reshape(-1) for vector in vectors])
        return shape, self._vault.interceptor.parts(call, models._parts(), flat)

    # Other ways in ------------------------------------------------------------------------------

    def delegate(self, mechanism: str | trusted.TrustedMechanism, **parameters: Any) -> object:
        """Run a mechanism of another library that the harness trusts; see `trusted/table.py`.

        Its noise comes from the kernel's generator, never from the method's public one; under
        secure noise from the operating system's entropy where the library can draw from it.
        """
        self._vault.refuse_for_clients()
        entry = trusted.find(mechanism)
        unchecked = entry.unchecked()
        if unchecked and not entry.plugin:
            self._record_access(unchecked)
        else:
            self._admit([self.plan(entry.event(parameters))], trust=entry.trust)
        self._vault.started = True
        call = Call("delegate", self._path, mechanism=f"{entry.name}, {sorted(parameters.items())}")
        rows, noise = self._rows.copy(), self._vault.noise
        self._vault.interceptor.delegating(call, entry, rows, self.encoder, parameters)
        if entry.run_secure is not None and not noise.reproducible:
            result = entry.run_secure(rows, self.encoder, parameters)
        else:
            result = entry.run(rows, self.encoder, noise.generator(), parameters)
        return self._vault.interceptor.delegated(call, result)

    def raw(self, reason: str) -> EncodedRows:
        """Return a copy of the rows themselves: non-private access.

        From then on the proven epsilon is infinite, and `reason` is shown with the result.
        """
        if not reason.strip():
            raise PrivacyContractError(
                "non-private access needs a reason: it is shown with the result"
            )
        self._record_access(reason)
        self._vault.started = True
        return self._rows.copy()

    def _record_access(self, reason: str) -> None:
        self._vault.ledger.add(Entry(self._path, non_private(), reason=reason))
