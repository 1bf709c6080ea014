"""White-box statistics: exact level on sound noise, and every way of cheating found."""

import numpy as np
import pytest
from scipy.stats import binomtest, chi2, kstest

from bench.errors import InputError
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from bench.stats.noise_check import Noise, check_noise, check_sampling

SHAPE = (60, 25)


def _draws(kind: Noise, rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    return scale * _units(kind, SeededNoise(rng))


def _units(kind: Noise, source: NoiseSource) -> np.ndarray:
    """Noise of scale 1, from a fine grid."""
    draw = source.normal if kind is Noise.GAUSSIAN else source.laplace
    return draw(2.0**20, SHAPE[0] * SHAPE[1]).reshape(SHAPE) * 2.0**-20


@pytest.mark.parametrize("kind", list(Noise))
def test_level_is_exact_on_sound_noise(kind: Noise) -> None:
    rng = np.random.default_rng(1)
    checks = [check_noise(_draws(kind, rng, 2.5), kind, 2.5) for _ in range(250)]
    for name in ("p_scale", "p_shape", "p_calls", "p_coordinates"):
        assert kstest([getattr(check, name) for check in checks], "uniform").pvalue > 1e-3, name
    assert np.mean([not check.passed(0.05) for check in checks]) < 0.10


def test_scale_p_value_is_the_chi_square_test() -> None:
    draws = np.random.default_rng(2).normal(0, 1.05, (40, 10))
    total = (draws**2).sum()
    expected = 2 * min(chi2.cdf(total, 400), chi2.sf(total, 400))
    check = check_noise(draws, Noise.GAUSSIAN, 1.0)
    assert check.p_scale == pytest.approx(expected)
    assert check.measured == pytest.approx(np.sqrt(total / 400))


@pytest.mark.parametrize("kind", list(Noise))
@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25])
def test_wrong_scale_is_found(kind: Noise, factor: float) -> None:
    check = check_noise(_draws(kind, np.random.default_rng(3), factor), kind, 1.0)
    assert check.p_scale < 1e-6 and not check.passed()
    assert check.measured == pytest.approx(factor, rel=0.1)


def test_wrong_shape_is_found_at_the_right_scale() -> None:
    rng = np.random.default_rng(4)
    check = check_noise(rng.laplace(0, np.sqrt(0.5), SHAPE), Noise.GAUSSIAN, 1.0)
    assert check.p_shape < 1e-4 and not check.passed()


def test_noise_drawn_once_is_found() -> None:
    """The same draw in every call, and one number for all coordinates."""
    rng = np.random.default_rng(5)
    again = np.repeat(rng.normal(size=(1, 25)), 60, axis=0)
    check = check_noise(again, Noise.GAUSSIAN, 1.0)
    assert check.p_calls < 1e-20 and not check.passed()
    one = np.repeat(rng.normal(size=(60, 1)), 25, axis=1)
    check = check_noise(one, Noise.GAUSSIAN, 1.0)
    assert check.p_coordinates < 1e-20 and not check.passed()


@pytest.mark.parametrize("kind", list(Noise))
def test_no_noise_and_enormous_noise_are_found(kind: Noise) -> None:
    assert not check_noise(np.zeros(SHAPE), kind, 1.0).passed()
    signs = np.where(np.arange(SHAPE[1]) % 2, 1.0, -1.0)
    assert not check_noise(np.full(SHAPE, 1e100) * signs, kind, 1.0).passed()


def test_system_noise_is_as_recorded() -> None:
    """Unseeded, so once in 10,000 runs of each this fails on sound noise."""
    source = SystemNoise()
    for kind in Noise:
        assert check_noise(_units(kind, source), kind, 1.0).passed()


def _samples(rng: np.random.Generator, rate: float, calls: int = 80, rows: int = 50) -> np.ndarray:
    source, included = SeededNoise(rng), np.zeros((calls, rows))
    for call in included:
        call[source.poisson_sample(rows, rate)] = 1.0
    return included


def test_sound_sampling_passes_at_its_rate() -> None:
    rng = np.random.default_rng(6)
    checks = [check_sampling(_samples(rng, 0.1), 0.1, rng) for _ in range(200)]
    assert kstest([check.p_sizes for check in checks], "uniform").pvalue > 1e-3
    assert np.mean([not check.passed(0.05) for check in checks]) < 0.10


def test_rate_p_value_is_the_binomial_test() -> None:
    rng = np.random.default_rng(7)
    samples = _samples(rng, 0.12)
    check = check_sampling(samples, 0.1, rng)
    assert check.p_rate == pytest.approx(binomtest(int(samples.sum()), 4000, 0.1).pvalue)
    assert check.measured == samples.mean()


def test_wrong_sampling_is_found() -> None:
    rng = np.random.default_rng(8)
    assert check_sampling(_samples(rng, 0.2), 0.1, rng).p_rate < 1e-6
    always = _samples(rng, 0.1)
    always[:, 7] = 1.0
    assert check_sampling(always, 0.1, rng).p_rows < 1e-6
    fixed = np.zeros((80, 50))
    for call in fixed:
        call[rng.choice(50, size=5, replace=False)] = 1.0
    check = check_sampling(fixed, 0.1, rng)
    assert check.p_sizes < 1e-6 and not check.passed() and check.p_rate > 0.05


def test_full_batch_is_every_row_every_time() -> None:
    rng = np.random.default_rng(9)
    assert check_sampling(np.ones((5, 9)), 1.0, rng).passed()
    missing = np.ones((5, 9))
    missing[2, 3] = 0.0
    assert not check_sampling(missing, 1.0, rng).passed()


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(10)
    with pytest.raises(InputError, match="shape"):
        check_noise(np.zeros(5), Noise.GAUSSIAN, 1.0)
    with pytest.raises(InputError, match="positive"):
        check_noise(np.zeros((2, 2)), Noise.GAUSSIAN, 0.0)
    with pytest.raises(InputError, match="something else"):
        check_sampling(np.full((2, 2), 0.5), 0.5, rng)
    with pytest.raises(InputError, match="rate"):
        check_sampling(np.ones((2, 2)), 0.0, rng)
