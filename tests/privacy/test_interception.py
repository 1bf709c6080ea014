"""What checks of methods see of a noisy call, and what they may replace."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from bench import PrivateData
from bench.data.encoder import EncodedRows
from bench.privacy.interception import (
    AnsweringPart,
    Blind,
    Call,
    Indices,
    Interceptor,
    PassThrough,
    Vectors,
)
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.privacy.trusted.table import TrustedMechanism
from tests.support.kernel import DATASET, ones

TRAIN = (("split", "train"),)


class Observer(Interceptor):
    """Notes everything, and replaces answers by numbers that are known."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.samples: list[int] = []
        self.seen: list[Vectors] = []
        self.of_parts: list[tuple[list[str], Vectors]] = []

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        assert len(rows) == len(DATASET.train) and len(drawn) < len(rows)
        self.samples.append(len(drawn))
        return drawn[:5]

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        assert len(rows) == len(vectors)
        self.calls.append(call)
        self.seen.append(vectors)
        return vectors[:3]

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        self.calls.append(call)
        self.of_parts.append(([part.name for part in parts], vectors))
        return np.ones_like(vectors)

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        assert call is self.calls[-1]
        return np.rint(answer)

    def delegated(self, call: Call, result: object) -> object:
        self.calls.append(call)
        return ("replaced", result)


def watched(observer: Interceptor) -> PrivateData:
    noise = SeededNoise(np.random.default_rng(0))
    return open_private(DATASET, None, noise, interceptor=observer)[0]


class TestWhatIsSeen:
    def test_sums(self) -> None:
        observer = Observer()
        private = watched(observer)
        assert private.gaussian_sum(ones, 2.0, 1e-9) == pytest.approx([3.0])
        assert private.poisson_sum(ones, 2.0, 1e-9, 0.5) == pytest.approx([3.0])
        assert [len(vectors) for vectors in observer.seen] == [len(DATASET.train), 5]
        assert observer.samples[0] == pytest.approx(len(DATASET.train) / 2, abs=60)
        assert observer.calls == [
            Call("gaussian_sum", TRAIN, 1e-9, 2.0),
            Call("poisson_sum", TRAIN, 1e-9, 2.0, 0.5),
        ]

    def test_a_sum_over_all_rows_is_not_sampled(self) -> None:
        observer = Observer()
        watched(observer).poisson_sum(ones, 2.0, 1e-9, 1.0)
        assert not observer.samples and len(observer.seen[0]) == len(DATASET.train)
        assert observer.calls == [Call("poisson_sum", TRAIN, 1e-9, 2.0, 1.0)]

    def test_histograms(self) -> None:
        observer = Observer()
        private = watched(observer).partition("class")["1"]

        def codes(rows: EncodedRows) -> np.ndarray:
            return np.stack([np.zeros(len(rows)), np.ones(len(rows))], axis=1)

        answers = private.histograms(codes, [1, 2], 1e-9, mechanism="laplace")
        assert [answer.tolist() for answer in answers] == [[3.0], [0.0, 3.0]]
        (call,) = observer.calls
        path = (*TRAIN, ("class", "1"))
        assert call == Call("histograms", path, 1e-9, bins=(1, 2), mechanism="laplace")
        private.histograms(codes, [1, 2], 1e-9)
        assert observer.calls[-1] == Call("histograms", path, 1e-9, bins=(1, 2))

    def test_answers_of_parts(self) -> None:
        observer = Observer()
        private = watched(observer)
        models = private.fit_parts(private.partition("class"), lambda rows, _: len(rows))
        total = private.partition_sum(models, lambda count: [[5.0, 6.0]], 3.0, 1e-9)
        assert total.tolist() == [[2.0, 2.0]]
        vectors = private.part_vectors(models, lambda count: [5.0], 3.0, 1e-9)
        assert vectors.tolist() == [[1.0], [1.0]]
        for names, seen in observer.of_parts:
            assert names == ["0", "1"] and seen[0, 0] == 5.0
        assert observer.calls == [
            Call("partition_sum", TRAIN, 1e-9, 3.0),
            Call("part_vectors", TRAIN, 1e-9, 3.0),
        ]

    def test_delegated_mechanisms(self) -> None:
        from bench import gaussian

        entry = TrustedMechanism(
            "count", "numpy", (), lambda _: gaussian(6.0), lambda r, e, g, p: p["answer"], "plugin"
        )
        observer = Observer()
        assert watched(observer).delegate(entry, answer=7, b=1) == ("replaced", 7)
        described = "count, [('answer', 7), ('b', 1)]"
        assert observer.calls == [Call("delegate", TRAIN, mechanism=described)]


class TestBlind:
    def test_every_noisy_call_answers_as_if_there_were_no_rows(self) -> None:
        private = watched(Blind())
        assert private.gaussian_sum(ones, 1.0, 1e-9) == pytest.approx([0.0], abs=1e-6)
        assert private.poisson_sum(ones, 1.0, 1e-9, 0.5) == pytest.approx([0.0], abs=1e-6)
        (counts,) = private.histograms(lambda rows: rows.labels[:, None], [2], 1e-9)
        assert counts == pytest.approx([0.0, 0.0], abs=1e-6)
        models = private.fit_parts(private.partition("class"), lambda rows, _: len(rows))
        total = private.partition_sum(models, lambda count: [1.0], 1.0, 1e-9)
        assert total == pytest.approx([0.0], abs=1e-6)

    def test_the_row_function_still_sees_the_rows(self) -> None:
        seen = []

        def function(rows: EncodedRows) -> np.ndarray:
            seen.append(len(rows))
            return np.ones((len(rows), 1))

        private = watched(Blind())
        private.gaussian_sum(function, 1.0, 1e-9)
        private.poisson_sum(function, 1.0, 1e-9, 0.5)
        assert seen[0] == len(DATASET.train)
        assert seen[1] == pytest.approx(len(DATASET.train) / 2, abs=60)

    @pytest.mark.parametrize("interceptor", [Blind(), PassThrough()])
    def test_answers_and_trusted_mechanisms_are_left_alone(self, interceptor: Interceptor) -> None:
        call, answer = Call("gaussian_sum", TRAIN), np.array([1.5])
        assert interceptor.answer(call, answer) is answer
        assert interceptor.delegated(call, "result") == "result"


class TestCall:
    def test_only_what_is_unusual_is_said(self) -> None:
        assert str(Call("raw", TRAIN)) == "raw on split=train ()"
        whole = Call("poisson_sum", (*TRAIN, ("class", "1")), 2.0, 0.5, 0.01234567)
        assert str(whole) == (
            "poisson_sum on split=train/class=1 (clip 0.5, noise multiplier 2, rate 0.01235)"
        )
        histogram = Call("histograms", TRAIN, 2.0, bins=(3, 4), mechanism="laplace")
        assert str(histogram) == (
            "histograms on split=train (noise multiplier 2, bins (3, 4), laplace)"
        )

    def test_nothing_is_clipped_or_sampled_unless_said(self) -> None:
        call = Call("histograms", TRAIN)
        assert (call.noise_multiplier, call.clip, call.rate) == (0.0, math.inf, 1.0)
