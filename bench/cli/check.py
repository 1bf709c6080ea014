"""`bench check`: the conformance kit."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("method")
@click.option(
    "--parameters",
    default="",
    metavar="NAME=VALUE,...",
    help="Hyperparameters other than the method's quick ones.",
)
@click.option("--no-audit", is_flag=True, help="Leave out the quick audit.")
def check(method: str, parameters: str, no_audit: bool) -> None:
    """Check a method: contract, determinism, budget, noise, awkward tables, a quick audit.

    Exit code 1 if anything must be fixed.
    """
    from bench.conformance.kit import check_method, to_text
    from bench.conformance.privacy import quick_audit

    def say(text: str) -> None:
        click.echo(f"... {text}", err=True)

    further = () if no_audit else (quick_audit,)
    report = check_method(method, _parsed(parameters), further=further, say=say)
    click.echo(to_text(report))
    sys.exit(1 if report.failed else 0)


def _parsed(text: str) -> dict[str, object]:
    """`a=1,b=text` with values as TOML reads them; what TOML cannot read is a text."""
    import tomllib

    from bench.errors import InputError

    found: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{part!r}: write NAME=VALUE, several with commas")
        try:
            found[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = value.strip()
    return found
