"""Zero-order dataset condensation (Thakur et al., Democratising Clinical AI, section 4).

A teacher f is fitted on the real rows. Synthetic rows start at random with fixed labels (and, for
survival, times) and descend a loss of the teacher's predictions on them:

    loss = supervision + alpha * matching                                        (4, alpha by 5)

Supervision is cross-entropy (2), Cox's partial likelihood (9) or a smooth L1 distance to the log
times (10); matching is the distance of mean predictions, by class (3) or stratum (11), to those of
as many real rows drawn anew in each step. The gradient is dloss/df times symmetric differences of f
in every feature (6, 7), and Adam takes the steps (8). With a budget, the gradient of each synthetic
row is clipped and noised (12, 13). The rows that do best on validation rows are released.

**Nothing is proven.** What the paper says was spent is recorded as the claim, under one of two ways
to count (`accounting`, see `_privacy`); the ledger says why it is no bound (`REASONS`).

Where the paper and its demo are silent, differ, or are departed from, with the alternative:

- Scale, in which learning rate, differences, start and clipping are measured. Of its two survival
  datasets the paper says that "all features are preprocessed through standardisation and encoding"
  (section 2.1), of the proteomics that they are "scaled and normalised plasma concentrations", and
  of the three CURIAL tables nothing. Nowhere does it say by which means and deviations. The default
  costs no privacy: `standardise="public"`, the middle and half of the half-range of the schema. The
  variant `standardise="rows"` takes means and deviations of the training rows, without noise and
  outside of the paper's account.
- Start ("randomly initialised"): standard normal in those units. The authors' demo of
  classification starts at the means and deviations of each class (`start="classes"`), which holds
  most of the signal before the first step, outside of any account.
- Differences are uniform in (0.025, 2) as in section 4.7 ("in most cases"), drawn for every column
  and step. The learning rate is the demo's 0.01: with the text's 0.001, rows have not converged
  after 2,000 steps (the demo takes up to 30,000).
- Only features move. Half of the rows are events, with times "drawn uniformly from stratified bins
  spanning the range between the minimum observed event time and the maximum censoring time in the
  real dataset"; the other half are censored, "with their times fixed to the maximum observed
  censoring time" (section 4.3). That is the default, `follow_up="observed"`: one patient's time is
  in half of the rows. The variant `follow_up="public"` takes both ends from the schema's time
  column, the upper one being a declared end of follow-up.
- Strata: censored rows, and events cut at quantiles of the synthetic event times (K in all).
- A step has one noise level for all rows, as the accountant is told; equation 13 has one per row.
- (2) and (10) are means over rows, (9) is a sum. Gradients of the means are multiplied by the
  number of rows before clipping, so that C means the same for every size; Adam's steps do not
  depend on it. The demo takes the mean in (9), too, and clips the whole matrix at once in
  classification.
- Several classes: softmax cross-entropy, and (3) added over the outputs.
- Noise comes from the public generator, because the kernel adds noise to sums over real rows only
  and these gradients are not. Anybody who knows the seed can subtract it.
- Boosted trees: the text's are depth 5 and 100 rounds; the demos' are depth 3 and stopped on
  validation rows (`trees="demo"`), the judge's too. The demos' differences are (0.25, 3), and they
  take 20,000 to 30,000 steps with a `patience` of 3,000 to 4,000: all three are parameters.
- The noise is calibrated for the smallest of its levels and all `steps`, so that the claim is
  within the target whatever levels are chosen; the paper tunes settings by trial.
- Images: with a teacher named explicitly, pixels are treated as columns. The paper has no images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from bench import (
    Between,
    Claim,
    Encoder,
    Method,
    NotApplicable,
    PrivateData,
    Release,
    Rows,
    Spec,
    Task,
)
from bench.methods._shared.parameters import check_parameters
from bench.methods.zero_order import _teachers
from bench.methods.zero_order._descent import Adam, CondensationLoss, DescentRecord, ValidationJudge
from bench.methods.zero_order._differences import FittedTeacher
from bench.methods.zero_order._losses import (
    CompositeLoss,
    CrossEntropy,
    MatchingLoss,
    PartialLikelihood,
    SmoothL1,
    Supervision,
    event_edges,
    event_strata,
)
from bench.methods.zero_order._privacy import (
    Accounting,
    base_noise,
    clipped,
    noise_level,
    steps_epsilon,
)
from bench.methods.zero_order._setup import (
    RealRows,
    Units,
    encoded_times,
    half_range,
    initial_times,
    middle,
)
from bench.methods.zero_order._teachers import LabelledRows, TeacherKind

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

TEACHER_REASON = "the teacher is fitted on the raw rows and steers every step"
REASONS = (
    "clipping is per synthetic row, so that one patient moves all m gradients (sensitivity up to "
    "2 C sqrt(m), accounted as C)",
    "noise levels are read off the gradients, and these off the rows",
    "real rows are drawn with replacement, and accounted as Poisson samples",
)
"""Why the claim is no bound, whatever the settings."""
UNITS_REASON = "units of the columns are means and deviations of the rows"
MOMENTS_REASON = "the synthetic rows start at the means and deviations of each class"
SCALE_REASON = "the time scale is computed from the event times"
TIMES_REASON = (
    "initial times and strata follow from the smallest event time and the largest censoring time, "
    "which is the time of every censored row released"
)
VALIDATION_REASON = "the best step is chosen by looking at the validation rows"
TREES_REASON = "the number of the teacher's trees is chosen by looking at the validation rows"


@final
@dataclass(frozen=True)
class ZeroOrderDc(Method):
    """Rows on which a fitted teacher predicts what their labels say."""

    name: ClassVar[str] = "zero-order-dc"
    title: ClassVar[str] = "Zero-order dataset condensation"
    paper: ClassVar[str] = (
        "Thakur et al., Democratising Clinical AI through Dataset Condensation for Classical "
        "Clinical Models, section 4"
    )
    family: ClassVar[str] = "condensation"
    tuned_on: ClassVar[tuple[str, ...]] = (
        "curial",
        "seer-breast",
        "seer-incidence",
        "ukb-diabetes",
        "ukb-proteomics",
    )

    search: ClassVar[Mapping[str, Any]] = {
        "learning_rate": Between(0.001, 0.1, log=True),
        "least_difference": (0.025, 0.25),
        "largest_difference": Between(1.0, 3.0),
        "start": ("random", "classes"),
        "standardise": ("public", "rows"),
    }
    quick: ClassVar[Mapping[str, Any]] = {"steps": 15, "validate_every": 10}

    teacher: Literal["auto", "xgboost", "logistic", "forest", "svm", "cox", "aft"] = "auto"
    """Kind of teacher; `auto` is xgboost for classes and cox for survival, and refuses images."""
    trees: Literal["text", "demo"] = "text"
    """Boosted trees of the paper's text, or of the demos, which stop on validation rows."""
    accounting: Accounting = "all-steps"
    """What the claim counts: every step, or the first alone as the authors' demo does."""
    noise: bool = True
    """False condenses without noise, whatever the budget, and claims nothing."""
    steps: int = 2000
    """Steps of the descent."""
    learning_rate: float = 0.01
    """Step size of Adam."""
    least_difference: float = 0.025
    """Least length of a symmetric difference."""
    largest_difference: float = 2.0
    """Largest length of a symmetric difference."""
    matching_ratio: float = 0.1
    """Target ratio of the matching loss: rho of equation 5."""
    strata: int = 4
    """Number of strata, K of equation 11: the censored rows, and K - 1 strata of events."""
    time_bins: int = 20
    """Bins over which the initial event times are spread evenly."""
    clip: float = 1.0
    """Clipping norm of each synthetic row's gradient: C of equation 12."""
    standardise: Literal["public", "rows"] = "public"
    """Unit of learning rate, differences, start and clipping: half of a column's public half-range,
    or its deviation in the real rows. The paper does not say which."""
    follow_up: Literal["observed", "public"] = "observed"
    """Ends of the initial times, of which the later is the time of all censored rows: the smallest
    event time and the largest censoring time, as published, or the bounds of the schema."""
    start: Literal["random", "classes"] = "random"
    """Initial rows: standard normal, or by the moments of each class as in the authors' demo."""
    positive_share: float | None = None
    """Share of the second class (or of events) in the release; None for IPC rows per class."""
    validate_every: int = 100
    """Steps between evaluations on the validation rows; 0 releases the last step without any."""
    patience: int = 0
    """Steps without a better evaluation after which the descent ends; 0 takes all `steps`."""

    def __post_init__(self) -> None:
        share = self.positive_share
        ordered = self.largest_difference >= self.least_difference
        check_parameters(
            self,
            self.name,
            {
                "steps": (self.steps >= 1, "1 or more"),
                "learning_rate": (self.learning_rate > 0, "a positive number"),
                "least_difference": (self.least_difference > 0, "a positive number"),
                "largest_difference": (ordered, "`least_difference` or more"),
                "matching_ratio": (0.0 <= self.matching_ratio < 1.0, "in [0, 1)"),
                "strata": (self.strata >= 2, "2 or more"),
                "time_bins": (self.time_bins >= 1, "1 or more"),
                "clip": (self.clip > 0, "a positive number"),
                "positive_share": (share is None or 0.0 < share < 1.0, "between 0 and 1"),
                "validate_every": (self.validate_every >= 0, "0 or more"),
                "patience": (
                    self.patience == 0 or self.patience >= self.validate_every > 0,
                    "0, or `validate_every` (above 0) or more",
                ),
            },
        )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        kind = self._kind(spec.task)
        budget = spec.budget if self.noise else None
        rows = private.raw(TEACHER_REASON)
        if budget is not None:
            for reason in self._reasons(spec.task):
                private.raw(reason)
        real = RealRows.of(private.encoder, rows)
        real.examples.refuse_unfit()
        stopping = self._stopping(private, real, kind)
        teacher = _teachers.fit(kind, real.examples, rng, stopping)
        labels = self._labels(spec, private)
        times = self._times(private.encoder, real, labels, rng)
        units = self._units(private.encoder, real.examples)
        start = self._start(units, real.examples, labels, rng)
        loss = self._loss(kind, teacher, units, real, labels, times)

        base = 0.0
        rate = private.rate(len(labels))
        if budget is not None:
            counted = self.steps if self.accounting == "all-steps" else 1
            base = base_noise(budget, rate, counted)
        judge = self._judge(private, real, kind, units, labels, times)
        record = self._descend(loss, start, base, judge, rng)

        values = np.zeros((len(labels), private.width), dtype=np.float32)
        values[:, : private.encoder.feature_width] = units.rows(record.best)
        if times is not None:
            values[:, -1] = encoded_times(private.encoder, times)
        notes: dict[str, float | str] = {
            "teacher": kind,
            "steps": float(len(record.losses)),
            "best_step": float(record.best_step),
            "loss_first": record.losses[0],
            "loss_last": record.losses[-1],
        }
        if record.best_quality is not None:
            notes["validation_quality"] = record.best_quality
        claim = None
        if budget is not None:
            every, best, first = (
                steps_epsilon(Counter(record.noises[:count]), rate, budget.delta)
                for count in (None, record.best_step, 1)
            )
            notes |= {
                "noise_base": base,
                "noise_least": min(record.noises),
                "noise_largest": max(record.noises),
                "epsilon_all_steps": every,
                "epsilon_best_step": best,
                "epsilon_first_step": first,
            }
            claim = (
                Claim(every, budget.delta, "section 4.4, Opacus' RDP of every step with q = m/N")
                if self.accounting == "all-steps"
                else Claim(first, budget.delta, "the authors' demo: Opacus' RDP of the first step")
            )
        return Release(Rows(values, labels), claim=claim, notes=notes)

    # Set-up -------------------------------------------------------------------------------------

    def _kind(self, task: Task) -> TeacherKind:
        if self.teacher == "auto":
            if task is Task.IMAGE:
                raise NotApplicable(
                    "the paper condenses tables and survival datasets for classical models; name a "
                    "`teacher` to treat pixels as columns"
                )
            return "cox" if task is Task.SURVIVAL else "xgboost"
        known = _teachers.SURVIVAL if task is Task.SURVIVAL else _teachers.CLASSIFIERS
        if self.teacher not in known:
            raise NotApplicable(
                f"the teacher {self.teacher} does not support this task; use one of "
                f"{', '.join(known)}"
            )
        return self.teacher

    def _labels(self, spec: Spec, private: PrivateData) -> Labels:
        sizes = spec.rows_per_class(private.counts)
        if self.positive_share is not None:
            if len(sizes) != 2:
                raise NotApplicable("`positive_share` needs two classes")
            positives = min(max(1, round(self.positive_share * sum(sizes))), sum(sizes) - 1)
            sizes = (sum(sizes) - positives, positives)
        return np.repeat(np.arange(len(sizes)), sizes)

    def _reasons(self, task: Task) -> tuple[str, ...]:
        """Why the claim is no bound, beside the teacher and the validation rows."""
        survival = task is Task.SURVIVAL
        optional = (
            (UNITS_REASON, self.standardise == "rows"),
            (MOMENTS_REASON, self.start == "classes"),
            (SCALE_REASON, survival),
            (TIMES_REASON, survival and self.follow_up == "observed"),
        )
        return (*REASONS, *(reason for reason, applies in optional if applies))

    def _times(
        self, encoder: Encoder, real: RealRows, labels: Labels, rng: np.random.Generator
    ) -> Array | None:
        column = encoder.schema.time
        if column is None or real.times is None:
            return None
        if self.follow_up == "public":
            earliest, latest = float(column.low), float(column.high)
        else:
            happened = real.examples.labels == 1
            censored = real.times[~happened]
            latest = float(censored.max() if len(censored) else real.times.max())
            earliest = min(float(real.times[happened].min()), latest)
        times = np.full(len(labels), latest)
        events = int((labels == 1).sum())
        times[labels == 1] = initial_times(events, earliest, latest, self.time_bins, rng)
        return times

    def _units(self, encoder: Encoder, real: LabelledRows) -> Units:
        if self.standardise == "public":
            return Units(middle(encoder), 0.5 * half_range(encoder))
        return Units(real.features.mean(axis=0), real.features.std(axis=0))

    def _start(
        self, units: Units, real: LabelledRows, labels: Labels, rng: np.random.Generator
    ) -> Array:
        start = rng.standard_normal((len(labels), len(units.middle)))
        if self.start == "classes":
            if real.times is not None:
                raise NotApplicable("`start = classes` needs a classification task")
            for label in range(real.classes):
                features = units.standard(real.features[real.labels == label])
                start[labels == label] *= features.std(axis=0)
                start[labels == label] += features.mean(axis=0)
        return start

    def _loss(
        self,
        kind: TeacherKind,
        teacher: FittedTeacher,
        units: Units,
        real: RealRows,
        labels: Labels,
        times: Array | None,
    ) -> CondensationLoss:
        supervision: Supervision
        if times is None:
            groups, real_groups = labels, real.examples.labels
            count, factor = real.examples.classes, 1.0
            supervision = CrossEntropy(labels)
        else:
            assert real.times is not None
            count, factor = self.strata, 1.0 / self.strata
            edges = (
                event_edges(times, labels, self.strata)
                if (labels == 1).any()
                else np.zeros(self.strata - 2)
            )
            groups = event_strata(times, labels, edges)
            real_groups = event_strata(real.times, real.examples.labels, edges)
            supervision = (
                PartialLikelihood(times, labels)
                if kind == "cox"
                else SmoothL1(np.log(real.scaled(times)))
            )
        predictions = teacher.predict(real.examples.features)
        pools = [predictions[real_groups == group] for group in range(count)]
        present = np.array([len(pool) > 0 for pool in pools])
        matching = MatchingLoss(groups, present, factor)
        sizes = np.bincount(groups, minlength=count)
        composite = CompositeLoss(supervision, matching, self.matching_ratio)
        return CondensationLoss(teacher, units, composite, pools, sizes)

    def _stopping(
        self, private: PrivateData, real: RealRows, kind: TeacherKind
    ) -> LabelledRows | None:
        """The validation rows that the teacher's trees stop on; reading them is recorded."""
        if self.trees == "text" or kind not in ("xgboost", "aft"):
            return None
        if private.validation is None:
            raise NotApplicable("`trees = demo` stops on validation rows, and there are none")
        rows = private.validation.raw(TREES_REASON)
        held_out = RealRows.of(private.encoder, rows, real.scale).examples
        if not len(held_out.labels):
            raise NotApplicable("`trees = demo` stops on validation rows, and there are none")
        return held_out

    def _judge(
        self,
        private: PrivateData,
        real: RealRows,
        kind: TeacherKind,
        units: Units,
        labels: Labels,
        times: Array | None,
    ) -> ValidationJudge | None:
        validation = private.validation
        if not self.validate_every or validation is None:
            return None
        held_out = RealRows.of(private.encoder, validation.raw(VALIDATION_REASON), real.scale)
        if not len(held_out.examples.labels):
            return None
        scaled = None if times is None else real.scaled(times)
        return ValidationJudge(kind, units, held_out.examples, labels, scaled, self.trees == "demo")

    def _descend(
        self,
        loss: CondensationLoss,
        start: Array,
        base: float,
        judge: ValidationJudge | None,
        rng: np.random.Generator,
    ) -> DescentRecord:
        """Take the steps, with noise where `base` is positive; without a judge the last is best."""
        rows = start.copy()
        adam = Adam(rows.shape, self.learning_rate)
        seed = int(rng.integers(2**63))
        record = DescentRecord(rows)
        for step in range(1, self.steps + 1):
            lengths = rng.uniform(self.least_difference, self.largest_difference, (rows.shape[1],))
            value, gradient = loss.gradient(rows, lengths, rng)
            if base:
                gradient = clipped(gradient, self.clip)
                level = noise_level(gradient, self.clip, base) * base
                gradient += level * self.clip * rng.standard_normal(rows.shape)
                record.noises.append(level)
            rows += adam.step(gradient)
            record.losses.append(value.total)
            if judge is None:
                if step == self.steps:
                    record.keep(rows, step)
            elif step % self.validate_every == 0 or step == self.steps:
                record.compare(rows, step, judge.quality(rows, np.random.default_rng(seed)))
                if self.patience and step - record.best_step >= self.patience:
                    break
        return record
