"""Checks of hyperparameters, with errors that name the method, the value and what was expected."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Literal

from bench import InputError


def check_parameters(owner: object, name: str, conditions: Mapping[str, tuple[bool, str]]) -> None:
    """Refuse the first field of a dataclass that is not one of its choices or breaks a condition.

    Fields whose type is a `Literal` are checked against it. `conditions` holds, by field, whether
    its value is as expected, and what is expected; `name` is that of the owner in messages.
    """
    hints = typing.get_type_hints(type(owner))
    choices = {
        field: typing.get_args(hint)
        for field, hint in hints.items()
        if typing.get_origin(hint) is Literal
    }
    checks = {
        field: (getattr(owner, field) in allowed, f"one of {', '.join(map(str, allowed))}")
        for field, allowed in choices.items()
    }
    for field, (holds, expected) in {**checks, **conditions}.items():
        if not holds:
            raise InputError(f"{name}: {field}={getattr(owner, field)!r} is not {expected}")
