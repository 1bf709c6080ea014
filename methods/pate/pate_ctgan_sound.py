"""PATE-CTGAN with teachers of their own and an epsilon that the kernel proves.

PATE-GAN (Jordon, Yoon and van der Schaar 2019, algorithm 1) with the conditional generator of CTGAN
(Xu, Skoularidou, Cuesta-Infante and Veeramachaneni 2019), which is what PATE-CTGAN (Rosenblatt et
al. 2020) means to be. Written anew: in smartnoise-synth's code student and teachers are one network
and the conditions are drawn from exact frequencies (see `pate-ctgan`).

Private rows are touched twice:

1. **Frequencies.** In each class, noisy histograms of all d columns, by one Gaussian mechanism of
   sensitivity sqrt(d). Classes are disjoint. CTGAN's conditions are drawn from these, and the
   generator starts from them (see `_pate_generator`).
2. **Votes.** K teachers have disjoint random parts of the rows. In each of R rounds a teacher is
   trained further on its part against generated rows, then votes -1 or 1 on B fresh generated rows.
   Teachers are functions of their own part and of what was released before, so that adding or
   removing a row changes one vector of norm sqrt(B): the sum has sensitivity 2 sqrt(B), whatever
   the teacher has become in earlier rounds. The kernel adds noise of 2 sqrt(B) s and charges one
   Gaussian mechanism a round.

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
* A teacher votes 1 on the half of the rows that it finds more real (see `_pate_teachers`), and the
  student regresses the noisy mean vote instead of its sign: the noise then averages out.
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
    InputError,
    Method,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    Task,
    gaussian,
)
from bench.methods.pate._frequencies import Cells, frequencies
from bench.methods.pate._generator import (
    ConditionalGenerator,
    GeneratorTraining,
    Student,
    StudentTraining,
)
from bench.methods.pate._teachers import Labelled, Teacher, TeacherTraining

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class Noise:
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
    """Declared rows a teacher should have at least: small tables have fewer teachers."""
    rounds: int = 8
    """R."""
    batch: int = 500
    """B, generated rows that are voted on in a round; as many others train the teachers."""
    frequency_share: float = 0.3
    """f, the part of the budget (in 1 / noise^2) that pays for frequencies."""
    bins: int = 16
    """Intervals of a number."""
    teacher_hidden: int = 16
    teacher_steps: int = 20
    """Of each teacher, in a round."""
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
        cells = Cells(private.encoder, self.bins)
        noise, whole = self._reserved(private)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        chances = self._frequencies(private, cells, noise)
        generator = ConditionalGenerator(cells, chances, self.code, self.generator_hidden, random)
        teachers, deviation = self._train(private, generator, noise, random, rng)
        wanted = spec.rows_per_class(private.counts)
        made = generator.draw(np.repeat(np.arange(len(wanted), dtype=np.int64), wanted))
        claim = Claim.of(spec.budget, "Gaussian mechanisms on class frequencies and on votes")
        notes = {
            "noise_multiplier": whole,
            "frequency_noise_multiplier": noise.frequencies,
            "vote_noise_multiplier": noise.votes,
            "teachers": teachers,
            "mean_vote_noise": deviation,
        }
        return Release(Rows(made.values, made.labels), claim=claim, notes=notes)

    def noise_of(self, whole: float) -> Noise:
        """Multipliers which together spend what one Gaussian mechanism with noise `whole` does."""
        share = self.frequency_share
        return Noise(whole / math.sqrt(share), whole * math.sqrt(self.rounds / (1.0 - share)))

    def _reserved(self, private: PrivateData) -> tuple[Noise, float]:
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
        self, private: PrivateData, cells: Cells, noise: Noise
    ) -> npt.NDArray[np.float64]:
        """(classes, columns, cells) from the noisy histograms."""
        tables = []
        for part in private.partition("class").values():
            counts = part.histograms(cells.codes, cells.sizes, noise.frequencies)
            tables.append(frequencies(counts, part.counts.total, cells.most))
        return np.stack(tables)

    def _train(
        self,
        private: PrivateData,
        generator: ConditionalGenerator,
        noise: Noise,
        random: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[int, float]:
        """All rounds; gives the number of teachers and the noise of a mean vote."""
        width, classes = private.width, len(private.schema.classes)
        student = Student(width, len(private.encoder.blocks), classes, self.student_hidden, random)
        number = max(2, min(self.teachers, private.counts.total // self.rows_per_teacher))
        models = private.fit_parts(
            private.partition("teacher", parts=number),
            lambda rows, own: Teacher(width, classes, self.teacher_hidden, own),
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
    teacher: Teacher,
    rows: EncodedRows,
    own: np.random.Generator,
    *,
    against: Labelled,
    training: TeacherTraining,
) -> Teacher:
    return teacher.train(rows, against, training, own)


def _vote(teacher: Teacher, *, asked: Labelled) -> npt.NDArray[np.float32]:
    votes: npt.NDArray[np.float32] = teacher.votes(asked)
    return votes


def _labels(counts: Counts, size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Classes in the declared proportions; a class without rows counts as one row."""
    shares = np.maximum(1.0, np.array(counts.by_class, dtype=np.float64))
    return rng.choice(len(shares), size, p=shares / shares.sum()).astype(np.int64)
