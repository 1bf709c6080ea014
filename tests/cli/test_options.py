"""The grammar of `--parameters`, which all commands share."""

from __future__ import annotations

import click
import pytest

from bench.cli.options import parse_parameters


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        ([""], {}),
        (["bins=4"], {"bins": 4}),
        (["bins=4,rate=0.5"], {"bins": 4, "rate": 0.5}),
        (["bins=4", "rate=1e-3"], {"bins": 4, "rate": 1e-3}),
        (["tuning=private"], {"tuning": "private"}),
        (["tuning='private',audited=true"], {"tuning": "private", "audited": True}),
        (['title="a, b",bins=4'], {"title": "a, b", "bins": 4}),
        (["hidden=[32, 16],bins=4"], {"hidden": [32, 16], "bins": 4}),
        ([" bins = 4 , rate = 2 "], {"bins": 4, "rate": 2}),
        (["address=a=b"], {"address": "a=b"}),
        (["start=2020-01-01"], {"start": "2020-01-01"}),
        (["name="], {"name": ""}),
        (["bins=4,, rate=2,"], {"bins": 4, "rate": 2}),
        (["note=it's, in fact, text"], {"note": "it's, in fact, text"}),
        # JSON, which `bench audit` read before.
        (['clip=null,groups={"a": 1}'], {"clip": None, "groups": {"a": 1}}),
    ],
)
def test_values_are_toml_and_plain_text(texts: list[str], expected: dict[str, object]) -> None:
    assert parse_parameters(texts) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["bins"], "'bins' is not name=value"),
        (["=4"], "is not name=value"),
        (["groups=a,b"], "'b' is not name=value"),
        (["bins=4", "bins=5"], "bins is set twice"),
    ],
)
def test_a_malformed_parameter_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        parse_parameters(texts)
