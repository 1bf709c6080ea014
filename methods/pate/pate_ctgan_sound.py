"""PATE-CTGAN with separate teachers and an epsilon that the kernel proves.

PATE-GAN (Jordon, Yoon and van der Schaar 2019, algorithm 1) with the conditional generator of CTGAN
(Xu, Skoularidou, Cuesta-Infante and Veeramachaneni 2019), which is what PATE-CTGAN (Rosenblatt et
al. 2020) means to be. Written anew: in smartnoise-synth's code student and teachers are one network
and the conditions are drawn from exact frequencies (see `pate-ctgan`).

Private rows are touched twice:

1. **Frequencies.** In each class, noisy histograms of all d columns, by one Gaussian mechanism of
   sensitivity sqrt(d). Classes are disjoint. CTGAN's conditions are drawn from these, and the
   generator starts from them (see `ConditionalGenerator`).
2. **Votes.** K teachers have disjoint random parts of the rows. In each of R rounds a teacher is
   trained further on its part against generated rows, then votes -1 or 1 on B fresh generated rows.
   Teachers are functions of their part and of what was released before, so that adding or
   removing a row changes one vector of norm sqrt(B): the sum has sensitivity 2 sqrt(B), whatever
   the teacher has become in earlier rounds. The kernel adds noise of 2 sqrt(B) s and charges one
   Gaussian mechanism per round.

The student learns the noisy votes on generated rows, the generator learns from the student: both
are post-processing. All noise is fixed and reserved before the first answer: with s for the whole,
frequencies have s / sqrt(f) and each round s sqrt(R / (1 - f)), f being `frequency_share`; together
that is as private as one Gaussian mechanism with noise s (3.73 at epsilon 1, delta 1e-5).

**What votes can tell.** A mean vote lies in [-1, 1] and has noise 2 s sqrt(R B / (1 - f)) / K. More
votes are noisier ones: all R B together say as much as a single number with noise 2 s / K (f = 0).
Ten teachers at epsilon 1 thus know next to nothing (0.75), and only K helps. Hence 200 teachers of
at least 50 rows each rather than few good ones, few rounds, and a student whose prior is weighed
against the known noise. At epsilon 1 on Adult its scores still correlate by between -0.1 and
0.5 with the mean votes that it is to learn (0.7 to 0.9 at epsilon 10), and what is released is
hardly more than the noisy frequencies of each class: compare it with `marginals`.

Choices and deviations:

* R is fixed beforehand. PATE-GAN stops by a bound that depends on the votes, hence on the rows, and
  would itself need protection (Papernot et al. 2018). Gaussian noise replaces Laplace noise.
* A teacher votes 1 on the half of the rows that it finds more real (see `TeacherNetwork.votes`),
  and the student regresses the noisy mean vote instead of its sign: the noise then averages out.
* Bounds are those of the schema. CTGAN's mode-specific normalisation fits a Gaussian mixture to
  each number; here its modes are `bins` equal intervals between the public bounds.
* The label is always given, in the declared proportions, together with a cell of one other column:
  any column, in its plain frequency (CTGAN: one discrete column, the label among them, by the
  logarithm of frequencies, real rows being picked to match). The generator is made to comply, where
  CTGAN punishes by a cross-entropy, and is pulled towards the noisy frequencies in every column.
* A generator step is one of mirror descent (see `ConditionalGenerator.learn`): noise in the student
  moves it less than signal. No batch normalisation, no packing of rows, no gradient penalty.
* Survival: the classes are the event statuses, and the time is one more number of a row. Images are
  refused: histograms of all pixels would take the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    Counts,
    EncodedRows,
    Floats,
    InputError,
    Integers,
    Method,
    NotApplicable,
    Numeric,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    Task,
    gaussian,
)
from bench.methods._shared.codes import EqualBins, put_absent

if TYPE_CHECKING:
    import torch

Single = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]

_UNSEEN = 1e-6
"""Least probability of a cell: the generator starts from its logarithm."""
_NEVER = -1e4
"""Logarithm of the probability of a cell that a column does not have."""
_TEMPERATURE = 0.2
"""Temperature of the Gumbel softmax, as in CTGAN."""
_DRAWN_AT_ONCE = 4096
_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8
"""Constants of Adam (Kingma and Ba 2015)."""


@final
@dataclass(frozen=True)
class NoiseMultipliers:
    """Noise multipliers of the two kinds of questions."""

    frequencies: float
    votes: float


@final
@dataclass(frozen=True)
class PateCtganSound(Method):
    """A conditional generator that learns from a student of noisy teachers, all accounted."""

    name: ClassVar[str] = "pate-ctgan-sound"
    title: ClassVar[str] = "Conditional GAN with teachers, accounted by the kernel (PATE-CTGAN)"
    paper: ClassVar[str] = (
        "Jordon, Yoon and van der Schaar, PATE-GAN: Generating Synthetic Data with Differential "
        "Privacy Guarantees, ICLR 2019; Xu et al., Modeling Tabular Data using Conditional GAN, "
        "NeurIPS 2019"
    )
    link: ClassVar[str] = "https://openreview.net/forum?id=S1zk9iRqF7"
    family: ClassVar[str] = "GAN"
    by_maintainers: ClassVar[bool] = True
    tuned_on: ClassVar[tuple[str, ...]] = ("adult",)
    quick: ClassVar[Mapping[str, Any]] = {
        "rounds": 2,
        "batch": 40,
        "teachers": 5,
        "student_steps": 5,
        "generator_steps": 3,
    }

    teachers: int = 200
    """K, unless that leaves a teacher too few rows."""
    rows_per_teacher: int = 50
    """Least declared rows of a teacher: small tables have fewer teachers."""
    rounds: int = 8
    """R, the number of rounds."""
    batch: int = 500
    """B, generated rows that are voted on in a round; as many others train the teachers."""
    frequency_share: float = 0.3
    """f, the part of the budget (in 1 / noise^2) that pays for frequencies."""
    bins: int = 16
    """Intervals per number."""
    teacher_hidden: int = 16
    teacher_steps: int = 20
    """Steps of each teacher in a round."""
    teacher_batch: int = 64
    teacher_learning_rate: float = 0.005
    teacher_decay: float = 0.01
    student_hidden: int = 128
    student_steps: int = 100
    student_learning_rate: float = 0.01
    student_prior: float = 0.1
    code: int = 32
    """Noise numbers that the generator starts from."""
    generator_hidden: int = 128
    generator_steps: int = 60
    generator_batch: int = 250
    generator_learning_rate: float = 0.003
    strength: float = 2.0
    """2 turns a small mean vote v into the log odds log((1 + v) / (1 - v)) of being real."""
    marginal_weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("teachers", "batch", "bins"):
            self._require(getattr(self, name) >= 2, name, "2 or more")
        self._require(self.rounds >= 1, "rounds", "1 or more")
        self._require(self.rows_per_teacher >= 1, "rows_per_teacher", "1 or more")
        self._require(0.0 < self.frequency_share < 1.0, "frequency_share", "between 0 and 1")
        self._require(self.student_prior > 0, "student_prior", "a positive number")

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(f"pate-ctgan-sound: {name}={getattr(self, name)!r} is not {expected}")

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        if private.task is Task.IMAGE:
            raise NotApplicable(
                "CTGAN is for tables: noisy frequencies of every pixel would take the whole budget"
            )
        cells = EqualBins(private.encoder, self.bins)
        noise, whole = self._reserved(private)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        chances = self._frequencies(private, cells, noise)
        generator = ConditionalGenerator(cells, chances, self.code, self.generator_hidden, random)
        teachers, deviation = self._train(private, generator, noise, random, rng)
        sizes = spec.rows_per_class(private.counts)
        rows = generator.draw(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
        claim = Claim.of(spec.budget, "Gaussian mechanisms on class frequencies and on votes")
        notes = {
            "noise_multiplier": whole,
            "frequency_noise_multiplier": noise.frequencies,
            "vote_noise_multiplier": noise.votes,
            "teachers": teachers,
            "mean_vote_noise": deviation,
        }
        return Release(rows, claim=claim, notes=notes)

    def noise_of(self, whole: float) -> NoiseMultipliers:
        """Multipliers which together spend what one Gaussian mechanism with noise `whole` does."""
        share = self.frequency_share
        return NoiseMultipliers(
            whole / math.sqrt(share), whole * math.sqrt(self.rounds / (1.0 - share))
        )

    def _reserved(self, private: PrivateData) -> tuple[NoiseMultipliers, float]:
        """Calibrate the noise to the budget and charge everything, before the first answer."""
        parts = private.partition("class").values()

        def plans(whole: float) -> list[PlannedEvents]:
            noise = self.noise_of(whole)
            asked = [part.plan(gaussian(noise.frequencies)) for part in parts]
            return [*asked, private.plan(gaussian(noise.votes), self.rounds)]

        whole = private.calibrate(plans)
        private.reserve_all(plans(whole))
        return self.noise_of(whole), whole

    def _frequencies(
        self, private: PrivateData, cells: EqualBins, noise: NoiseMultipliers
    ) -> Double:
        """(classes, columns, cells) from the noisy histograms."""
        tables = []
        for part in private.partition("class").values():
            counts = part.histograms(cells.codes, cells.sizes, noise.frequencies)
            tables.append(frequencies(counts, part.counts.total, max(cells.sizes)))
        return np.stack(tables)

    def _train(
        self,
        private: PrivateData,
        generator: ConditionalGenerator,
        noise: NoiseMultipliers,
        random: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[int, float]:
        """Run all rounds; return the number of teachers and the noise of a mean vote."""
        width, classes = private.width, len(private.schema.classes)
        student = Student(width, len(private.encoder.blocks), classes, self.student_hidden, random)
        number = max(2, min(self.teachers, private.counts.total // self.rows_per_teacher))
        models = private.fit_parts(
            private.partition("teacher", parts=number),
            lambda _, part_rng: TeacherNetwork(width, classes, self.teacher_hidden, part_rng),
        )
        of_teacher = TeacherTraining(
            self.teacher_steps, self.teacher_batch, self.teacher_learning_rate, self.teacher_decay
        )
        of_student = StudentTraining(
            self.student_steps, self.student_learning_rate, self.student_prior
        )
        of_generator = GeneratorTraining(
            self.generator_steps,
            self.generator_learning_rate,
            self.strength,
            self.marginal_weight,
        )
        clip = math.sqrt(self.batch)
        deviation = 2.0 * clip * noise.votes / number
        for _ in range(self.rounds):
            # Rows that teachers were trained on would be recognised, so others are voted on.
            against = generator.draw(_labels(private.counts, self.batch, rng))
            asked = generator.draw(_labels(private.counts, self.batch, rng))
            models.update(partial(_train_teacher, against=against, training=of_teacher))
            votes = private.partition_sum(models, partial(_vote, asked=asked), clip, noise.votes)
            # Teachers differ by chance as well: a mean of K votes of size 1 varies by up to 1 / K.
            variance = deviation**2 + 1.0 / number
            student.learn(asked, votes / number, variance, of_student)
            generator.learn(
                student, _labels(private.counts, self.generator_batch, rng), of_generator
            )
        return number, deviation


def _train_teacher(
    teacher: TeacherNetwork,
    rows: EncodedRows,
    part_rng: np.random.Generator,
    *,
    against: Rows,
    training: TeacherTraining,
) -> TeacherNetwork:
    return teacher.train(rows, against, training, part_rng)


def _vote(teacher: TeacherNetwork, *, asked: Rows) -> Single:
    votes: Single = teacher.votes(asked)
    return votes


def _labels(counts: Counts, size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Classes in the declared proportions; a class without rows counts as one row."""
    shares = np.maximum(1.0, np.array(counts.by_class, dtype=np.float64))
    return rng.choice(len(shares), size, p=shares / shares.sum()).astype(np.int64)


# Frequencies: where conditions come from ----------------------------------------------------------


def midpoints(cells: EqualBins) -> Double:
    """(columns, most cells, width): the encoded values that a cell adds to a row."""
    points = np.zeros((len(cells.sizes), max(cells.sizes), cells.encoder.width))
    for number, block in enumerate(cells.blocks):
        size = cells.sizes[number]
        if isinstance(block.column, Numeric):
            bins = cells.bins
            points[number, :bins, block.start] = 2.0 * (np.arange(bins) + 0.5) / bins - 1.0
            indicator = cells.encoder.indicator(block)
            if indicator is not None:
                put_absent(points[number, :size], block, indicator, np.arange(size) == bins)
        elif block.stop - block.start == 1:
            points[number, :2, block.start] = (-1.0, 1.0)
        else:
            points[number, np.arange(size), block.start + np.arange(size)] = 1.0
    return points


def frequencies(counts: list[Double], total: int, most: int) -> Double:
    """(columns, most) probabilities nearest to noisy counts of `total` rows; 0 beyond a column.

    Each column's counts over the declared total are projected onto the simplex, which subtracts
    the same number everywhere and cuts at 0: cells that hold noise only are mostly emptied.
    """
    table = np.zeros((len(counts), most))
    for number, noisy in enumerate(counts):
        chances = on_simplex(noisy / max(1, total))
        table[number, : len(noisy)] = (chances + _UNSEEN) / (1.0 + _UNSEEN * len(noisy))
    return table


def on_simplex(vector: Double) -> Double:
    """The nearest vector of probabilities (Duchi et al. 2008, figure 1)."""
    falling = np.sort(vector)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(vector) + 1)
    threshold = excess[np.flatnonzero(falling > excess)[-1]]
    result: Double = np.maximum(vector - threshold, 0.0)
    return result


# Teachers -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TeacherTraining:
    """How every teacher is trained."""

    steps: int
    """Adam steps per round."""
    batch: int
    """Real rows per step, and as many generated ones."""
    learning_rate: float
    decay: float
    """Factor of the L2 penalty |weights|^2 / 2."""


def discriminator_inputs(values: Floats, labels: Integers, classes: int) -> Single:
    """Inputs of a discriminator: the encoded values and the one-hot class."""
    return np.hstack([values, np.eye(classes, dtype=np.float32)[labels]], dtype=np.float32)


@final
class TeacherNetwork:
    """A small discriminator of one part of the rows.

    A teacher sees the rows of its part and generated rows, nothing else. It is a network of one
    hidden layer, logit(x) = w . relu(x W + b) + c on a row and its one-hot class, trained by Adam
    on the logistic loss (real against generated) with an L2 penalty. It lives inside the kernel:
    what leaves is a noisy sum of votes. NumPy rather than torch: hundreds of networks are trained
    in turn, and for networks this small the gradient by hand is several times faster.
    """

    def __init__(self, width: int, classes: int, hidden: int, rng: np.random.Generator) -> None:
        before = width + classes
        self._classes = classes
        self.weights: list[Single] = [
            (rng.normal(size=(before, hidden)) / np.sqrt(before)).astype(np.float32),
            np.zeros(hidden, dtype=np.float32),
            (rng.normal(size=hidden) / np.sqrt(hidden)).astype(np.float32),
            np.zeros(1, dtype=np.float32),
        ]
        self._first = [np.zeros_like(weight) for weight in self.weights]
        self._second = [np.zeros_like(weight) for weight in self.weights]
        self._steps = 0

    def logits(self, rows: Single) -> Single:
        """Above 0 where the teacher takes a row for a real one."""
        into, shift, out, constant = self.weights
        result: Single = np.maximum(rows @ into + shift, 0.0) @ out + constant
        return result

    def votes(self, rows: Rows) -> Single:
        """+1 for the half of the rows that looks more real, -1 for the other: norm sqrt(rows).

        PATE-GAN votes by the sign of the logit. A teacher with few rows knows them by
        heart and calls all others generated; by its median it still says which come closer.
        """
        logits = self.logits(discriminator_inputs(rows.values, rows.labels, self._classes))
        result: Single = np.where(logits > np.median(logits), 1.0, -1.0).astype(np.float32)
        return result

    def gradients(self, rows: Single, real: Single, decay: float) -> list[Single]:
        """Gradients of the mean logistic loss plus decay / 2 |W|^2 + decay / 2 |w|^2."""
        into, shift, out, _ = self.weights
        active = np.maximum(rows @ into + shift, 0.0)
        logits = active @ out + self.weights[3]
        error = (0.5 * (1.0 + np.tanh(logits / 2.0)) - real) / np.float32(len(rows))
        back = error[:, None] * out * (active > 0)
        return [
            rows.T @ back + np.float32(decay) * into,
            back.sum(axis=0),
            active.T @ error + np.float32(decay) * out,
            error.sum(keepdims=True),
        ]

    def train(
        self,
        real_rows: EncodedRows,
        generated: Rows,
        training: TeacherTraining,
        rng: np.random.Generator,
    ) -> TeacherNetwork:
        """Take some steps on real against generated rows; a part without rows learns nothing."""
        if not len(real_rows):
            return self
        size = min(training.batch, len(real_rows))
        real_inputs = discriminator_inputs(real_rows.values, real_rows.labels, self._classes)
        others = discriminator_inputs(generated.values, generated.labels, self._classes)
        real = np.repeat(np.array([1.0, 0.0], dtype=np.float32), size)
        for _ in range(training.steps):
            chosen = rng.choice(len(real_inputs), size, replace=False)
            against = rng.integers(len(others), size=size)
            rows = np.concatenate([real_inputs[chosen], others[against]])
            self._descend(self.gradients(rows, real, training.decay), training.learning_rate)
        return self

    def _descend(self, gradients: list[Single], rate: float) -> None:
        self._steps += 1
        size = rate * np.sqrt(1.0 - _SECOND_DECAY**self._steps) / (1.0 - _FIRST_DECAY**self._steps)
        for weight, first, second, gradient in zip(
            self.weights, self._first, self._second, gradients, strict=True
        ):
            first += (1.0 - _FIRST_DECAY) * (gradient - first)
            second += (1.0 - _SECOND_DECAY) * (gradient**2 - second)
            weight -= (size * first / (np.sqrt(second) + _SMALL)).astype(np.float32)


# Generator and student ----------------------------------------------------------------------------
#
# Both are public: the generator starts from noisy frequencies, the student learns noisy votes on
# generated rows, and neither ever meets a private row.


@final
@dataclass(frozen=True)
class GeneratorTraining:
    """How the generator learns from the student in a round."""

    steps: int
    learning_rate: float
    strength: float
    """Weight of the student's score against staying where the generator is."""
    marginal_weight: float


@final
@dataclass(frozen=True)
class StudentTraining:
    """How the student learns from the votes of a round."""

    steps: int
    learning_rate: float
    prior: float
    """p: variance that a weight is expected to have."""


@final
class ConditionalGenerator:
    """Rows of a class, given one column's cell.

    Input: normal noise, the one-hot class and a condition, which is one column drawn at random
    with a cell drawn from the class's noisy frequencies. The conditioned column comes out as asked.
    Every other column k takes a cell by Gumbel softmax with the logits

        log frequency_k(cell | class) + network_k(cell),

    and a number lies within its interval at u in (-1, 1), logit((1 + u) / 2) = logistic noise +
    network. The last layer starts at 0: columns are then independent, with the noisy frequencies.
    """

    def __init__(
        self,
        cells: EqualBins,
        chances: Double,
        code: int,
        hidden: int,
        random: torch.Generator,
    ) -> None:
        import torch

        self._code, self._random = code, random
        self._columns, self._most = len(cells.sizes), max(cells.sizes)
        self._classes = len(chances)
        self._chances = torch.tensor(chances, dtype=torch.float32)
        # A column without such a cell: a number rather than -inf, whose differences are NaN.
        self._log_chances = self._chances.log().clamp_min(_NEVER)
        self._midpoints = torch.tensor(midpoints(cells), dtype=torch.float32).flatten(0, 1)
        blocks = cells.blocks
        numbers = [index for index, block in enumerate(blocks) if isinstance(block.column, Numeric)]
        self._numbers = len(numbers)
        # Where the position within an interval goes, and how wide half an interval is.
        self._offsets = torch.zeros(self._numbers, cells.encoder.width)
        for row, index in enumerate(numbers):
            self._offsets[row, blocks[index].start] = 1.0 / cells.bins
        outputs = self._columns * self._most
        before = code + self._classes + outputs
        first = torch.randn(before, hidden, generator=random) / (code + 2) ** 0.5
        second = torch.randn(hidden, hidden, generator=random) * (2.0 / hidden) ** 0.5
        last = torch.zeros(hidden, outputs + self._numbers)
        self.parameters = [first, torch.zeros(hidden), second, torch.zeros(hidden), last]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def conditions(self, labels: torch.Tensor) -> torch.Tensor:
        """(rows, columns, most): one cell of one column is 1."""
        import torch

        rows = torch.arange(len(labels))
        column = torch.randint(self._columns, (len(labels),), generator=self._random)
        cell = torch.multinomial(self._chances[labels, column], 1, generator=self._random)[:, 0]
        conditions = torch.zeros(len(labels), self._columns, self._most)
        conditions[rows, column, cell] = 1.0
        return conditions

    def inputs(self, labels: torch.Tensor) -> torch.Tensor:
        """Noise, class and condition of each row, side by side."""
        import torch
        from torch.nn import functional

        noise = torch.randn(len(labels), self._code, generator=self._random)
        classes = functional.one_hot(labels, self._classes).float()
        return torch.cat([noise, classes, self.conditions(labels).flatten(1)], dim=1)

    def logits(
        self, inputs: torch.Tensor, parameters: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, columns, most) log probabilities of cells, and shifts within intervals."""
        import torch

        first, shift, second, other, last = parameters or self.parameters
        state = torch.relu(inputs @ first + shift)
        outputs = torch.relu(state @ second + other) @ last
        last_cell = self._columns * self._most
        cells, shifts = outputs[:, :last_cell], outputs[:, last_cell:]
        labels = inputs[:, self._code : self._code + self._classes].argmax(dim=1)
        raw = cells.reshape(-1, self._columns, self._most) + self._log_chances[labels]
        return torch.log_softmax(raw, dim=2), shifts

    def rows(
        self, inputs: torch.Tensor, logits: torch.Tensor, shifts: torch.Tensor
    ) -> torch.Tensor:
        """Encoded rows; gradients pass through the choice of cells (straight-through)."""
        import torch
        from torch.nn import functional

        uniform = torch.rand(logits.shape, generator=self._random).clamp(1e-9, 1.0 - 1e-7)
        soft = torch.softmax((logits - (-uniform.log()).log()) / _TEMPERATURE, dim=2)
        hard = functional.one_hot(soft.argmax(dim=2), self._most).float()
        chosen = hard + (soft - soft.detach())  # exactly `hard`, with the gradient of `soft`
        asked = inputs[:, self._code + self._classes :].reshape(logits.shape)
        chosen = torch.where(asked.sum(dim=2, keepdim=True) > 0, asked, chosen)
        place = torch.rand(shifts.shape, generator=self._random).clamp(1e-6, 1.0 - 1e-6)
        within = 2.0 * torch.sigmoid(place.logit() + shifts) - 1.0
        return chosen.flatten(1) @ self._midpoints + within @ self._offsets

    def draw(self, labels: npt.NDArray[np.int64]) -> Rows:
        """Draw one row per label, without gradients."""
        import torch

        pieces = []
        with torch.no_grad():
            for start in range(0, len(labels), _DRAWN_AT_ONCE):
                inputs = self.inputs(torch.from_numpy(labels[start : start + _DRAWN_AT_ONCE]))
                pieces.append(self.rows(inputs, *self.logits(inputs)))
        # Sums of single-precision numbers may leave [-1, 1] by a rounding.
        return Rows(torch.cat(pieces).clamp(-1.0, 1.0).numpy(), labels)

    def learn(
        self, student: Student, labels: npt.NDArray[np.int64], training: GeneratorTraining
    ) -> None:
        """Some Adam steps towards rows that the student takes for real.

        The loss is the mean over rows of

            - strength * student(x, y) + sum over columns of KL(now || at the start of the round),

        plus `marginal_weight` times the sum over classes and columns of KL(noisy frequencies ||
        generated frequencies). Were strength * student the log density ratio of real and generated
        rows, the first line would be least at the real density: the step is one of mirror descent,
        and a student that has learned nothing (0 everywhere) leaves the generator where it is, up
        to the size of Adam's steps.
        """
        import torch

        target = torch.from_numpy(labels)
        before = [parameter.detach().clone() for parameter in self.parameters]
        optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate)
        for _ in range(training.steps):
            inputs = self.inputs(target)
            with torch.no_grad():
                old, old_shifts = self.logits(inputs, before)
            logits, shifts = self.logits(inputs)
            scores = student.scores(self.rows(inputs, logits, shifts), target)
            moved = (logits.exp() * (logits - old)).sum(dim=(1, 2))
            moved = moved + (shifts - old_shifts).square().sum(dim=1)
            loss = (moved - training.strength * scores).mean()
            loss = loss + training.marginal_weight * self._gap(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _gap(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Sum over classes and columns of KL(noisy || generated frequencies)."""
        import torch

        gap = logits.new_zeros(())
        for label in range(self._classes):
            if not bool((labels == label).any()):
                continue
            made = logits[labels == label].exp().mean(dim=0).clamp_min(1e-9)
            noisy = self._chances[label]
            gap = gap + torch.special.xlogy(noisy, noisy).sum() - (noisy * made.log()).sum()
        return gap


@final
class Student:
    """A discriminator that has seen nothing but generated rows with noisy votes.

    score(x, y) = w . relu([x, y] W + b) / sqrt(hidden) estimates the mean vote in [-1, 1]. It is
    the most likely one given votes v with noise of variance s^2 and normal priors: least of

        mean (score - v)^2 + s^2 / (B p) (|w|^2 + |W - W_0|^2),

    where B is the number of votes and p the prior variance of weights. With much noise it stays at
    0; without noise nothing holds it back.
    """

    def __init__(
        self, width: int, columns: int, classes: int, hidden: int, random: torch.Generator
    ) -> None:
        import torch

        self._classes, self._scale = classes, hidden**0.5
        # A row has about one number of size 1 per column, its class included.
        first = torch.randn(width + classes, hidden, generator=random) / (columns + 1) ** 0.5
        self._start = first.clone()
        self.parameters = [first, torch.randn(hidden, generator=random), torch.zeros(hidden)]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def scores(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Estimated mean vote on each row."""
        import torch
        from torch.nn import functional

        first, shift, last = self.parameters
        state = torch.cat([values, functional.one_hot(labels, self._classes).float()], dim=1)
        scores: torch.Tensor = torch.relu(state @ first + shift) @ last / self._scale
        return scores

    def learn(
        self,
        rows: Rows,
        votes: Double,
        variance: float,
        training: StudentTraining,
    ) -> None:
        """Adam on all votes of a round, whose noise has the given variance."""
        import torch

        values, labels = torch.from_numpy(rows.values), torch.from_numpy(rows.labels)
        target = torch.tensor(votes, dtype=torch.float32)
        decay = variance / (len(rows) * training.prior)
        optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate)
        for _ in range(training.steps):
            first, _, last = self.parameters
            size = last.square().sum() + (first - self._start).square().sum()
            error = (self.scores(values, labels) - target).square().mean()
            optimizer.zero_grad()
            (error + decay * size).backward()
            optimizer.step()
