"""`python -m bench.audit.libraries run` or `page`: library audits and their documents."""

from __future__ import annotations

from pathlib import Path

import click

from bench.audit.libraries import campaign, page

_DOCS = Path("docs")


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.group()
def main() -> None:
    """Audit libraries as shipped, and write what came out."""


@main.command()
@click.argument("names", nargs=-1)
@click.option("--docs", type=click.Path(path_type=Path), default=_DOCS, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def run(names: tuple[str, ...], docs: Path, seed: int) -> None:
    """Run the targets NAMES, or all, that have no current result."""
    failed = campaign.run_missing(docs / "audits" / "libraries", names, seed, _say)
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


@main.command(name="page")
@click.option("--docs", type=click.Path(path_type=Path), default=_DOCS, show_default=True)
def write(docs: Path) -> None:
    """Write the page and the texts for maintainers from stored results."""
    for path in page.write_pages(docs):
        click.echo(f"wrote {path}")


if __name__ == "__main__":
    main()
