"""The search for the smallest noise, on functions whose answer is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from bench.errors import CalibrationError
from bench.privacy import accounting
from bench.privacy.accounting import calibrate_noise


class Counted:
    """A function of the noise that remembers where it was evaluated."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self._function = function
        self.asked: list[float] = []

    def __call__(self, noise: float) -> float:
        self.asked.append(noise)
        return self._function(noise)


@pytest.mark.parametrize("target", [0.01, 0.3, 1.0, 7.0, 50.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 5.0])
def test_powers_of_the_noise(target: float, power: float) -> None:
    """epsilon = 3 / noise^p is the target at (3 / target)^(1/p)."""
    noise = calibrate_noise(lambda s: 3.0 / s**power, target)
    assert 0.999 * target <= 3.0 / noise**power <= target


def test_a_straight_line_is_hit_at_the_first_attempt() -> None:
    """In logarithms 3 / noise is a line: after the bracket one step lands where it aims, a
    twentieth of a percent below the target."""
    for target in (0.3, 1.0, 7.0, 1000.0):
        curve = Counted(lambda s: 3.0 / s)
        noise = calibrate_noise(curve, target)
        assert 3.0 / noise == pytest.approx(target * (1.0 - 0.5e-3), rel=1e-9)
        assert curve.asked[-1] == pytest.approx(noise, rel=1e-12)
    # From 1.0 the answers of the first half lie upwards, the others downwards.
    up, down = Counted(lambda s: 3.0 / s), Counted(lambda s: 0.3 / s)
    calibrate_noise(up, 1.0)
    calibrate_noise(down, 1.0)
    # The bracket doubles, or goes by quarters near the target; one end is asked once more.
    assert up.asked[:-1] == [1.0, 2.0, 4.0, 2.0]
    assert down.asked[:-1] == [1.0, 0.5, 0.25, 0.25]


def test_near_the_target_the_bracket_is_narrow() -> None:
    """Within a fifth of the target the noise changes by a quarter instead of a factor of two."""
    above, below = Counted(lambda s: 1.19 / s), Counted(lambda s: 0.81 / s)
    calibrate_noise(above, 1.0)
    calibrate_noise(below, 1.0)
    assert above.asked[1] == 1.25 and below.asked[1] == 0.8
    above, below = Counted(lambda s: 1.2 / s), Counted(lambda s: 0.8 / s)
    calibrate_noise(above, 1.0)
    calibrate_noise(below, 1.0)
    assert above.asked[1] == 2.0 and below.asked[1] == 0.5


@pytest.mark.parametrize("edge", [0.01, 1.0, 1.3, 777.0])
@pytest.mark.parametrize("before, after", [(2.0, 0.5), (1.01, 1e-9), (1e9, 0.99)])
def test_a_jump_is_found_from_the_side_with_enough_noise(
    edge: float, before: float, after: float
) -> None:
    """No noise spends exactly the target here; what is returned lies at the jump, not before it."""
    curve = Counted(lambda s: after if s >= edge else before)
    noise = calibrate_noise(curve, 1.0)
    # Every third step halves the interval: a lopsided jump cannot stall the search.
    assert edge <= noise <= edge * (1.0 + 1e-6)
    assert noise in curve.asked


def test_an_end_that_is_good_enough_is_returned_without_a_search() -> None:
    curve = Counted(lambda s: 1.9995 / s)
    assert calibrate_noise(curve, 1.0) == 2.0
    # Both ends of the bracket, and its first one again.
    assert curve.asked == [1.0, 2.0, 1.0]


def test_a_quick_bound_brackets_the_answer_first() -> None:
    """The bound is twice as large: the search of the true function starts at its answer."""
    quick, slow = Counted(lambda s: 20.0 / s), Counted(lambda s: 10.0 / s)
    noise = calibrate_noise(slow, 1.0, quick)
    assert 0.999 <= 10.0 / noise <= 1.0
    assert quick.asked[0] == 1.0
    # The quick search stops within 2% below the target.
    assert 20.0 <= slow.asked[0] <= 20.0 / 0.98
    assert len(slow.asked) <= 5


def test_where_any_noise_is_enough_little_is_used() -> None:
    assert calibrate_noise(lambda s: 0.0, 1.0) == 2.0**-9, "the last half above a thousandth"
    free = Counted(lambda s: 0.5)
    assert calibrate_noise(free, 1.0) == 2.0**-9
    assert min(free.asked) == 2.0**-9


def test_noise_of_a_million_is_the_limit() -> None:
    with pytest.raises(CalibrationError, match="1e\\+06 spends more than epsilon 1"):
        calibrate_noise(lambda s: 2.0, 1.0)
    # The bracket doubles from 1: 2^19 is within the limit, and 2^20 is not.
    assert calibrate_noise(lambda s: 0.9995 if s >= 2.0**19 else 2.0, 1.0) == 2.0**19
    with pytest.raises(CalibrationError):
        calibrate_noise(lambda s: 0.9995 if s >= 2.0**20 else 2.0, 1.0)
    with pytest.raises(CalibrationError):
        calibrate_noise(lambda s: math.inf, 1.0)


def test_log_ratios_are_finite() -> None:
    assert accounting._log_ratio(math.e, 1.0) == pytest.approx(1.0)
    assert accounting._log_ratio(1.0, math.e) == pytest.approx(-1.0)
    assert accounting._log_ratio(0.0, 1.0) == -50.0
    assert accounting._log_ratio(math.inf, 1.0) == 50.0
    # Beyond the limits on both sides, and below the smallest argument of the logarithm.
    assert accounting._log_ratio(math.exp(49.5), 1.0) == pytest.approx(49.5)
    assert accounting._log_ratio(math.exp(-49.5), 1.0) == pytest.approx(-49.5)
    assert accounting._log_ratio(math.exp(60.0), 1.0) == 50.0
    assert accounting._log_ratio(math.exp(-60.0), 1.0) == -50.0


def test_a_target_that_is_met_exactly_is_met() -> None:
    assert calibrate_noise(lambda s: 1.0 / s, 1.0) == 1.0
    assert calibrate_noise(lambda s: 3.0 / s, 1.5) == 2.0

    def plateau(noise: float) -> float:
        return 2.0 if noise < 1.3 else 1.0 if noise < 1.99 else 0.5

    # The first step between 1 and 2 lands on the plateau, whose epsilon is the target.
    assert calibrate_noise(plateau, 1.0) == pytest.approx(math.sqrt(2.0), rel=1e-3)


def test_near_is_relative_to_the_target() -> None:
    for target in (0.01, 5.0):
        above, below = (
            Counted(lambda s, c=1.19 * target: c / s),
            Counted(lambda s, c=0.81 * target: c / s),
        )
        calibrate_noise(above, target)
        calibrate_noise(below, target)
        assert above.asked[1] == 1.25 and below.asked[1] == 0.8
        far = Counted(lambda s, c=1.3 * target: c / s)
        calibrate_noise(far, target)
        assert far.asked[1] == 2.0


def test_limits_of_the_bracket_belong_to_it() -> None:
    assert accounting._bracket(lambda s: 0.0, 1.0, 0.002) == (0.0, (0.001, 0.0))
    at_the_limit = accounting._bracket(lambda s: 1.0 if s >= 1e6 else 2.0, 1.0, 5e5)
    assert at_the_limit == (5e5, (1e6, 1.0))
    with pytest.raises(CalibrationError):
        accounting._bracket(lambda s: 1.0 if s >= 1e6 else 2.0, 1.0, 500_000.25)


def test_a_jump_that_misleads_the_search_ends_it_after_sixty_steps() -> None:
    """The line between the two ends points at the right one, and the jump is at the left one."""
    curve = Counted(lambda s: 0.99 if s >= 1.0000001 else 1e9)
    noise = calibrate_noise(curve, 1.0)
    assert curve.asked[:3] == [1.0, 2.0, 1.0] and len(curve.asked) == 63
    # Twenty bisections of log 2, and forty steps of at least a fiftieth.
    assert 0.0 <= math.log(noise / 1.0000001) <= math.log(2.0) * 0.5**20 * 0.98**40 * 1.001
