"""Checks of hyperparameters: the first value that is not as expected is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from bench.errors import InputError
from bench.methods._shared.parameters import check_parameters

Speed = Literal["slow", "fast"]


@dataclass(frozen=True)
class Setting:
    name: ClassVar[str] = "setting"

    kind: Literal["one", "two"] = "one"
    speed: Speed = "slow"
    steps: int = 1

    def __post_init__(self) -> None:
        check_parameters(self, self.name, {"steps": (self.steps >= 1, "1 or more")})


def test_values_as_expected_pass() -> None:
    assert Setting("two", "fast", 3).steps == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "three"}, "setting: kind='three' is not one of one, two"),
        ({"speed": "still"}, "setting: speed='still' is not one of slow, fast"),
        ({"steps": 0}, "setting: steps=0 is not 1 or more"),
    ],
)
def test_the_error_names_the_value_and_what_was_expected(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Setting(**wrong)  # type: ignore[arg-type]
