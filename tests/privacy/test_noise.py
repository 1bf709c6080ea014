"""Noise on the integers: its law, how it is decided, and samples of rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import ndtri

from bench.privacy import noise as sampling
from bench.privacy.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
    bernoulli_sample,
    rounded_laplace,
    rounded_normal,
)

DRAWS = 40_000
LEAST_EXPECTED = 20.0
"""Numbers in a cell of a chi-square test."""


def seeded(seed: int = 0) -> SeededNoise:
    return SeededNoise(np.random.default_rng(seed))


def goodness_of_fit(
    values: npt.NDArray[np.int64], cdf: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
) -> float:
    """p-value of a chi-square test against P(K = k) = F(k + 1/2) - F(k - 1/2).

    Cells of which few numbers are expected are part of a neighbour: the law of the statistic is
    none of chi-square otherwise, and one number in a tail would be a p-value of 1e-18.
    """
    low, high = int(np.quantile(values, 0.01)), int(np.quantile(values, 0.99))
    edges = np.unique(np.linspace(low, high, 60).astype(int)) + 0.5
    cuts = [-np.inf]
    for edge in edges:
        if len(values) * min(cdf(edge) - cdf(cuts[-1]), 1.0 - cdf(edge)) >= LEAST_EXPECTED:
            cuts.append(edge)
    cuts.append(np.inf)
    expected = np.diff(cdf(np.array(cuts))) * len(values)
    counted = np.histogram(values, cuts)[0]
    return float(stats.chisquare(counted, expected).pvalue)


@pytest.mark.parametrize("scale", [0.3, 1.0, 17.25, 2.0**20 * 1.37, 2.0**31])
@pytest.mark.parametrize("source", [seeded(1), SystemNoise()], ids=["seeded", "system"])
def test_noise_has_the_law_of_a_rounded_number(scale: float, source: NoiseSource) -> None:
    normal = source.normal(scale, DRAWS)
    assert goodness_of_fit(normal, stats.norm(scale=scale).cdf) > 1e-6
    laplace = source.laplace(scale, DRAWS)
    assert goodness_of_fit(laplace, stats.laplace(scale=scale).cdf) > 1e-6


def difficult_points() -> npt.NDArray[np.float64]:
    """Uniform numbers, both ends, and where `ndtri` changes from one approximation to another."""
    rng = np.random.default_rng(0)
    near = 1.0 + 1e-3 * (rng.random(200) - 0.5)
    return np.concatenate(
        [
            rng.random(500),
            2.0 ** (-66.0 * rng.random(1500)),
            1.0 - 2.0 ** -(1.0 + 52.0 * rng.random(500)),
            2.0 * math.exp(-2.0) * near,
            2.0 * math.exp(-32.0) * near,
            (np.arange(1, 100) + 0.5) * 2.0**-64,
        ]
    )


def test_the_stated_error_of_the_quantiles_is_far_above_the_measured_one() -> None:
    points = difficult_points()
    with mpmath.workprec(160):
        for u in points:
            quantile = float(-ndtri(0.5 * u))
            exact = mpmath.mpf(quantile)
            for _ in range(3):  # Newton's method on P(|X| > x) = u
                excess = mpmath.erfc(exact / mpmath.sqrt(2)) - mpmath.mpf(float(u))
                exact += excess * mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(exact**2 / 2)
            assert abs(quantile - exact) <= sampling._RELATIVE / 16 * exact
            logarithm = mpmath.log(mpmath.mpf(float(u)))
            assert abs(float(np.log(u)) - logarithm) <= sampling._RELATIVE / 16 * -logarithm


@pytest.mark.parametrize("steps", [sampling._Normal(1.0), sampling._Laplace(1.0)])
def test_the_bound_on_unknown_bits_holds_over_the_whole_cell(steps: sampling._Steps) -> None:
    """|q(U) - q(u)| for U at both ends of its cell, from the smallest numbers to the largest.

    The quantile is convex: towards zero it rises more than its slope in the middle of the cell.
    """
    starts = (1, 2, 3, 10, 2**10, 2**30, 2**52, 2**62, 2**63 - 2)
    words = np.array([start << 1 for start in starts], dtype=np.uint64)
    quantiles = steps.quantiles(words, 1)
    with mpmath.workprec(300):
        for word, quantile in zip(words, quantiles, strict=True):
            bits = int(word) >> 1
            spread = sampling._SLOPE * (1.0 / (bits + 0.5) + 2.0**-52)
            spread += sampling._RELATIVE * (quantile + 1.0)
            # y(U) = q(U) + 1/2 lies between these two numbers at both ends of the cell.
            for end in (bits, bits + 1):
                u = mpmath.mpf(end) / 2**63
                assert u <= _at(steps, quantile - spread) and u >= _at(steps, quantile + spread)


def _at(steps: sampling._Steps, quantile: float) -> mpmath.mpf:
    """P(|X| > quantile)."""
    if quantile <= 0:
        return mpmath.mpf(1)
    if isinstance(steps, sampling._Laplace):
        return mpmath.exp(-mpmath.mpf(quantile))
    return mpmath.erfc(mpmath.mpf(quantile) / mpmath.sqrt(2))


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_small_scales_have_the_exact_probabilities(law: str, scale: float) -> None:
    """Every value by itself against P(K = k), computed in multiple precision."""
    draws = 200_000
    values = getattr(seeded(7), law)(scale, draws)

    def tail(k: float) -> float:
        """P(scale X >= k), k > 0."""
        x = mpmath.mpf(k) / mpmath.mpf(scale)
        return float(mpmath.erfc(x / mpmath.sqrt(2)) / 2 if law == "normal" else mpmath.exp(-x) / 2)

    last = 0
    while draws * tail(last + 1.5) >= 10:
        last += 1
    half = [tail(k - 0.5) - tail(k + 0.5) for k in range(1, last + 1)] + [tail(last + 0.5)]
    expected = np.array([*reversed(half), 1.0 - 2.0 * tail(0.5), *half]) * draws
    counted = np.bincount(np.clip(values, -last - 1, last + 1) + last + 1, minlength=2 * last + 3)
    assert stats.chisquare(counted, expected).pvalue > 1e-6


@pytest.mark.parametrize("draw", [rounded_normal, rounded_laplace])
@pytest.mark.parametrize("scale", [0.02, 3.0, 2.0**20])
def test_a_number_that_begins_with_zeros_gets_more_bits(
    draw: Callable[..., npt.NDArray[np.int64]], scale: float
) -> None:
    """63 zero bits leave the number unbounded: further bits decide how far out it lies."""

    def drawn(sign: int, *further: int) -> int:
        answers = iter([sign, *further])
        return int(draw(scale, 1, lambda count: np.array([next(answers)], dtype=np.uint64))[0])

    def exact(u: mpmath.mpf) -> int:
        if draw is rounded_laplace:
            return int(mpmath.floor(scale * -mpmath.log(u) + 0.5))
        x = mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / u), 12.0)
        return int(mpmath.floor(scale * x + 0.5))

    with mpmath.workprec(400):
        for first, second in ((2**63, 5), (3, 2**40), (0, 7)):
            further = (first, second, 2**63, 12345)
            bits = sum(word << 64 * place for place, word in enumerate(reversed(further)))
            expected = exact(mpmath.mpf(bits) / mpmath.mpf(2) ** (63 + 256))
            # The last bit of the first word is the sign.
            assert (drawn(0, *further), drawn(1, *further)) == (expected, -expected)


def test_a_tiny_rate_samples_nearly_nothing() -> None:
    """A gap of more than 2^63 rows must not wrap around to a negative one."""
    for rate in (1e-12, 1e-17, 1e-19, 1e-30, 1e-100):
        sizes = [len(bernoulli_sample(1000, rate, seeded(seed).words)) for seed in range(200)]
        assert sum(sizes) == 0
    samples = [bernoulli_sample(3, 1.0 - 2.0**-53, seeded(seed).words) for seed in range(20)]
    assert all(sample.tolist() == [0, 1, 2] for sample in samples)


@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_words_have_64_random_bits(generator: Callable[[int], np.random.BitGenerator]) -> None:
    words = SeededNoise(np.random.Generator(generator(3))).words(4000)
    ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert min(stats.binomtest(count, 4000).pvalue for count in ones) > 1e-6 / 64
    same = np.random.Generator(generator(3)).integers(2**64, size=4000, dtype=np.uint64)
    assert (words == same).all()


@pytest.mark.parametrize("draw", [rounded_normal, rounded_laplace])
def test_what_doubles_cannot_decide_is_decided_the_same_way(
    draw: Callable[..., npt.NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a huge error bound every number is decided in multiple precision: equal numbers."""
    rng = np.random.default_rng(3)
    words = rng.integers(2**64, size=200, dtype=np.uint64)
    further = np.random.default_rng(4)

    def bits(count: int) -> npt.NDArray[np.uint64]:
        if count == len(words):
            return words
        return further.integers(2**64, size=count, dtype=np.uint64)

    quick = draw(1000.5, len(words), bits)
    monkeypatch.setattr(sampling, "_RELATIVE", 0.01)
    assert (draw(1000.5, len(words), bits) == quick).all()


def test_a_number_on_a_boundary_is_decided_by_further_bits() -> None:
    """U begins with all the bits of a boundary between two steps; what follows decides."""
    steps = sampling._Laplace(4.0)
    with mpmath.workprec(400):
        boundary = mpmath.exp(-mpmath.mpf(1) / 2 / 4)  # y(u) = 1
        first = int(mpmath.floor(boundary * 2**63))
        second = int(mpmath.floor((boundary * 2**63 - first) * 2**64))

    def decided(further: int) -> int:
        words = iter([further])
        uniform = sampling._Uniform(
            first, 63, lambda count: np.array([next(words)], dtype=np.uint64)
        )
        return sampling._decided(steps, uniform, 3)

    # A larger U is a smaller number.
    assert decided(second - 5) == 1
    assert decided(second + 5) == 0


@pytest.mark.parametrize("source", [seeded(2), SystemNoise()], ids=["seeded", "system"])
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.97])
def test_a_sample_holds_each_row_independently(source: NoiseSource, rate: float) -> None:
    rows, draws = 40, 3000
    included = np.zeros((draws, rows))
    for number in range(draws):
        sample = source.poisson_sample(rows, rate)
        assert len(np.unique(sample)) == len(sample)
        included[number, sample] = 1.0
    deviation = math.sqrt(rate * (1 - rate) / draws)
    assert np.abs(included.mean(axis=0) - rate).max() < 6.5 * deviation
    sizes = included.sum(axis=1)
    assert stats.binomtest(int(sizes.sum()), draws * rows, rate).pvalue > 1e-6
    assert sizes.var() == pytest.approx(rows * rate * (1 - rate), rel=0.2)
    # Pairs of rows: the share of samples that hold both, over all 780 pairs.
    both = (included.T @ included)[np.triu_indices(rows, 1)]
    smallest = min(
        stats.binomtest(int(count), draws, rate * rate).pvalue for count in np.unique(both)
    )
    assert smallest > 1e-6 / len(both)


def test_samples_of_no_rows_and_of_all_rows() -> None:
    assert len(bernoulli_sample(0, 0.5, seeded().words)) == 0
    assert (bernoulli_sample(7, 1.0, seeded().words) == np.arange(7)).all()


class TestWhatDoublesDecide:
    """The bound of the module's text: scale c (1 / (b + 1/2) + 2^-52) + 2^-44 (y + 1)."""

    @staticmethod
    def sure(
        bits: int, value: float, scale: float = 1.0, limit: float = 2.0**62, sign: int = 0
    ) -> tuple[int, bool]:
        """Return the floor, and whether it is decided, of y = value at these bits."""
        words = np.array([bits << sign], dtype=np.uint64)
        quantiles = np.array([(value - 0.5) / scale])
        floors, undecided = sampling._sure_floors(
            words, sign, quantiles, scale, 0.5, limit, sampling._RELATIVE
        )
        return int(floors[0]), undecided.size == 0

    @pytest.mark.parametrize("bits", [1, 2, 3, 10])
    @pytest.mark.parametrize("scale", [0.1, 0.5])
    def test_unknown_bits(self, bits: int, scale: float) -> None:
        bound = scale * 1.2534 / (bits + 0.5)
        for distance, decided in ((0.99, False), (1.01, True)):
            assert self.sure(bits, 4.0 - distance * bound, scale) == (3, decided)
            assert self.sure(bits, 3.0 + distance * bound, scale) == (3, decided)

    @pytest.mark.parametrize("floor", [0, 3, 1000])
    def test_rounding_of_the_quantile(self, floor: int) -> None:
        """With 63 known bits and a small scale only the relative error is left."""
        for distance, decided in ((0.9, False), (1.1, True)):
            above = floor + 1.0 - distance * sampling._RELATIVE * (floor + 2.0)
            assert self.sure(2**63, above, 1e-6) == (floor, decided)
            if floor:
                below = floor + distance * sampling._RELATIVE * (floor + 1.0)
                assert self.sure(2**63, below, 1e-6) == (floor, decided)

    def test_the_spacing_of_doubles(self) -> None:
        """At all bits known, 2^-52 of the scale is left: it counts where the scale is large."""
        scale = 2.0**32
        bound = scale * 1.2534 * (2.0**-63 + 2.0**-52) + sampling._RELATIVE * 11.0
        for distance, decided in ((0.95, False), (1.05, True)):
            assert self.sure(2**63, 11.0 - distance * bound, scale) == (10, decided)

    def test_a_number_of_zeros_is_never_decided(self) -> None:
        assert self.sure(0, 3.5) == (3, False)
        words = np.array([0, 1, 2, 3, 2**63], dtype=np.uint64)
        quantiles = np.full(5, 0.0)
        floors, undecided = sampling._sure_floors(
            words, 1, quantiles, 1e-6, 0.5, 10.0, sampling._RELATIVE
        )
        # Words 0 and 1 are the number 0 with either sign.
        assert undecided.tolist() == [0, 1] and floors.tolist() == [0] * 5

    def test_the_last_bit_is_the_sign(self) -> None:
        words = np.array([2**63, 2**63 + 1], dtype=np.uint64)
        for sign, expected in ((1, [3, -3]), (0, [3, 3])):
            floors, undecided = sampling._sure_floors(
                words, sign, np.full(2, 3.0), 1.0, 0.5, 10.0, sampling._RELATIVE
            )
            assert floors.tolist() == expected and undecided.size == 0

    def test_the_limit_is_reached_only_for_sure(self) -> None:
        assert self.sure(10, 10.5, 0.1, limit=10.0) == (10, True)
        assert self.sure(10, 99.5, 0.1, limit=10.0) == (10, True)
        assert self.sure(10, 10.01, 0.1, limit=10.0) == (10, False)
        assert self.sure(10, 9.99, 0.1, limit=10.0) == (9, False)
        # Likely beyond the limit, but not surely: the limit is the likely one.
        assert self.sure(1, 10.3, 0.5, limit=10.0) == (10, False)
        assert self.sure(1, 11.0, 3.0, limit=10.0) == (10, False)


class TestDecided:
    """The search in multiple precision, from any likely value."""

    @pytest.mark.parametrize("likely", [0, 1, 4, 5, 6, 7, 100, 10**6])
    @pytest.mark.parametrize("true", [0, 1, 5, 6, 50])
    def test_the_floor_does_not_depend_on_where_the_search_starts(
        self, true: int, likely: int
    ) -> None:
        asked = []

        class Known:
            def reaches(self, steps: object, step: int) -> bool:
                assert step >= 1
                asked.append(step)
                return true >= step

        assert sampling._decided(None, Known(), likely) == true  # type: ignore[arg-type]
        # Steps double: some two questions per bit of the distance.
        assert len(asked) <= 4 + 3 * max(1, abs(true - likely)).bit_length()


class TestBoundaries:
    """The u with y(u) = step, against the inverse laws of another library."""

    @pytest.mark.parametrize("step", [1, 2, 3, 40])
    def test_are_tails_of_the_laws(self, step: int) -> None:
        scale, rate = 7.5, 0.03
        x = (step - 0.5) / scale
        for steps, tail in (
            (sampling._Normal(scale), 2.0 * stats.norm.sf(x)),
            (sampling._Laplace(scale), 2.0 * stats.laplace.sf(x)),
            # More than step - 1 coins are tossed up to the first success.
            (sampling._Gaps(rate), stats.geom.sf(step - 1, rate)),
        ):
            assert float(steps.boundary(step, mpmath.mp)) == pytest.approx(tail, rel=1e-12)

    def test_quantiles_invert_them(self) -> None:
        words = np.array([2**40, 2**61, 2**63, 2**64 - 2], dtype=np.uint64)
        for steps in (sampling._Normal(3.0), sampling._Laplace(3.0), sampling._Gaps(0.2)):
            for sign in (0, 1):
                u = (np.floor(words / 2.0**sign) + 0.5) / 2.0 ** (64 - sign)
                law = stats.norm if isinstance(steps, sampling._Normal) else stats.laplace
                if isinstance(steps, sampling._Gaps):
                    expected = -np.log(u)
                    assert steps.scale == pytest.approx(-1.0 / math.log(0.8))
                else:
                    expected = law.isf(u / 2.0)
                assert steps.quantiles(words, sign) == pytest.approx(expected, rel=1e-9, abs=1e-15)


class TestSources:
    def test_a_library_gets_a_fresh_generator_each_time(self) -> None:
        noise = seeded(5)
        children = np.random.default_rng(5).spawn(2)
        assert [noise.generator().random() for _ in range(2)] == [
            child.random() for child in children
        ]

    def test_256_bits_of_the_system_seed_a_librarys_generator(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn = bytes(range(32))
        monkeypatch.setattr(sampling.os, "urandom", lambda size: drawn[:size] + b"!" * (size - 32))
        generator = SystemNoise().generator()
        entropy = generator.bit_generator.seed_seq
        assert isinstance(entropy, np.random.SeedSequence)
        # All 256 bits count: a pool of four words would keep half of them.
        assert entropy.entropy == int.from_bytes(drawn, "big") and entropy.pool_size == 8
        same = np.random.PCG64(np.random.SeedSequence(entropy.entropy, pool_size=8))
        assert generator.random() == np.random.Generator(same).random()

    def test_words_of_the_system_are_its_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampling.os, "urandom", lambda size: bytes(range(size)))
        words = SystemNoise().words(3)
        assert words.tobytes() == bytes(range(24)) and words.dtype == np.uint64

    def test_seeded_noise_is_reproducible_and_the_systems_is_not(self) -> None:
        assert SeededNoise.reproducible is True and SystemNoise.reproducible is False


class TestScales:
    @pytest.mark.parametrize("draw", [rounded_normal, rounded_laplace])
    def test_beyond_the_largest_scale_nothing_is_drawn(
        self, draw: Callable[..., npt.NDArray[np.int64]]
    ) -> None:
        from bench.errors import PrivacyContractError

        for scale in (0.0, -1.0, math.nan, math.inf, 2.0**32 * (1.0 + 2.0**-52)):
            with pytest.raises(PrivacyContractError, match="ask for less noise"):
                draw(scale, 1, seeded().words)
        assert len(draw(2.0**32, 3, seeded().words)) == 3
        assert draw(1e-300, 3, seeded().words).tolist() == [0, 0, 0]


class Boundary(sampling._Steps):
    """A boundary that is known exactly."""

    def __init__(self, boundary: Callable[[object], object]) -> None:
        self._boundary = boundary

    def quantiles(self, words: npt.NDArray[np.uint64], sign: int) -> npt.NDArray[np.float64]:
        raise NotImplementedError

    def boundary(self, step: int, mp: object) -> object:
        return self._boundary(mp)


class TestFurtherBits:
    """U = 0.100... in three known bits lies in [4/8, 5/8); u = 2^-67 is the room for rounding."""

    def asked(self, eighths: float, rooms: float, further: int = 2**63) -> tuple[bool, int]:
        """Return the answer for a boundary of so many eighths and rooms, and the words drawn."""
        drawn = []

        def words(count: int) -> npt.NDArray[np.uint64]:
            drawn.append(count)
            return np.array([further] * count, dtype=np.uint64)

        steps = Boundary(lambda mp: mp.mpf(eighths) / 8 + mp.mpf(rooms) * mp.mpf(2) ** -67)
        answer = sampling._Uniform(4, 3, words).reaches(steps, 1)
        assert set(drawn) <= {1} and answer is (answer == True)  # noqa: E712
        return answer, len(drawn)

    def test_a_boundary_outside_needs_none(self) -> None:
        assert self.asked(5.5, 0) == self.asked(5, 1) == self.asked(8, 0) == (True, 0)
        assert self.asked(3.5, 0) == self.asked(4, -1) == self.asked(1, 0) == (False, 0)

    def test_a_boundary_inside_or_too_near_needs_some(self) -> None:
        assert self.asked(4.25, 0) == (False, 1)
        assert self.asked(4.75, 0) == (True, 1)
        assert self.asked(5, 0) == self.asked(5, 0.75) == (True, 1)
        assert self.asked(4, 0) == self.asked(4, -0.75) == (False, 1)

    def test_the_next_bits_are_appended(self) -> None:
        """With the word w, U lies in [(4 + w 2^-64) / 8, (4 + (w + 1) 2^-64) / 8)."""
        for share in (0.0, 0.125, 0.625, 1.0 - 2.0**-11):
            word = int(share * 2.0**64)
            inside = 4.0 + share
            assert self.asked(inside + 2.0**-40, 0, word) == (True, 1)
            if share:
                assert self.asked(inside - 2.0**-40, 0, word) == (False, 1)

    def test_equal_bits_are_drawn_until_they_differ(self) -> None:
        # The boundary 4.5 / 8 begins with the word 2^63, and zeros follow.
        drawn = iter([2**63, 0, 0, 5])
        uniform = sampling._Uniform(4, 3, lambda count: np.array([next(drawn)], dtype=np.uint64))
        assert not uniform.reaches(Boundary(lambda mp: mp.mpf(4.5) / 8), 1)
        assert next(drawn, None) is None

    def test_a_context_of_multiple_precision_is_kept(self) -> None:
        first = sampling._context(100)
        assert first.prec == 100 and sampling._context(300) is first and first.prec == 300


class TestGapsBetweenRows:
    @staticmethod
    def sample(rows: int, rate: float, gaps: list[int]) -> tuple[list[int], int]:
        """Return the sample for these gaps, then gaps beyond the end, and the batches drawn."""
        steps = sampling._Gaps(rate)
        waiting, batches = list(gaps), 0

        def words(count: int) -> npt.NDArray[np.uint64]:
            nonlocal batches
            batches += 1
            chosen = [waiting.pop(0) if waiting else rows + 1 for _ in range(count)]
            # The middle of the u whose gap it is.
            middles = [
                (steps.boundary(gap, mpmath.mp) + steps.boundary(gap + 1, mpmath.mp)) / 2
                for gap in chosen
            ]
            return np.array([int(middle * 2**64) for middle in middles], dtype=np.uint64)

        return bernoulli_sample(rows, rate, words).tolist(), batches

    def test_a_gap_counts_the_coins_up_to_the_next_row(self) -> None:
        assert self.sample(20, 0.1, [1, 1, 3, 2]) == ([0, 1, 4, 6], 1)
        assert self.sample(20, 0.1, [20]) == ([19], 1)
        assert self.sample(20, 0.1, [21]) == ([], 1)
        assert self.sample(1, 0.1, [1]) == ([0], 1)
        assert self.sample(1, 0.1, [2]) == ([], 1)

    def test_batches_are_joined(self) -> None:
        """Eight gaps, or a few more than the expected number, are drawn at once."""
        everybody = [1] * 40
        for rows, batches in ((8, 1), (9, 2), (12, 2), (16, 2), (17, 3)):
            assert self.sample(rows, 0.02, everybody) == (list(range(rows)), batches)

    def test_the_last_row_of_a_batch_can_be_the_last_but_one(self) -> None:
        assert self.sample(9, 0.02, [1] * 8 + [1]) == (list(range(9)), 2)
        assert self.sample(9, 0.02, [1] * 8 + [2]) == (list(range(8)), 2)

    @pytest.mark.parametrize("rows, rate", [(100_000, 0.01), (100_000, 0.9)])
    def test_the_cost_grows_with_the_sample(self, rows: int, rate: float) -> None:
        drawn = []

        def words(count: int) -> npt.NDArray[np.uint64]:
            drawn.append(count)
            return seeded(1).words(count)

        sample = bernoulli_sample(rows, rate, words)
        expected = rows * rate
        assert abs(len(sample) - expected) < 6.0 * math.sqrt(expected)
        # Four deviations more than expected, so that one batch nearly always is enough.
        assert len(drawn) == 1 and 3.9 < (drawn[0] - expected) / math.sqrt(expected) < 4.3
