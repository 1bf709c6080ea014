"""Write the badges of README.md: small pictures that say what files of this repository say.

    .venv/bin/python .ci/badges.py            # `make findings`: write docs/images/badge-*.svg
    .venv/bin/python .ci/badges.py --check    # a test: exit code 1 if one says something else

A badge shows a fact that can be checked here: the Python that `pyproject.toml` asks for, its
licence, and how many cells and proofs the newest published version holds. None is loaded from
elsewhere, and none says that tests pass: `.ci/run` does.
"""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path

from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.tables.load import load_results
from bench.leaderboard.tables.published import published_directory
from bench.results.published import check_published

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

_WIDTH = 6.6
"""Width of a character at 11 px: `textLength` fits the text into it."""

_BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{left}: {right}</title>
<rect width="{width}" height="20" rx="3" fill="#006d4e"/>
<path d="M3 0h{half_left}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="{text_left}">{left}</text>
<text x="{start}" y="14" textLength="{text_right}">{right}</text>
</g>
</svg>
"""


def badges() -> dict[str, str]:
    """Return the text of each badge by the name of its file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = published_directory("published")
    cells = load_results([newest]).cells
    ok = cells[cells["status"] == "ok"]
    sound = sum(map(is_sound, ok["verdict"]))
    facts = {
        "python": ("python", project["requires-python"]),
        "licence": ("licence", project["license"]),
        "results": (f"results {check_published(newest).version}", f"{len(cells)} cells"),
        "proofs": ("proven epsilon within the target", f"{sound} of {len(ok)} releases"),
    }
    return {f"badge-{name}.svg": _badge(*fact) for name, fact in facts.items()}


def _badge(left: str, right: str) -> str:
    text_left, text_right = (round(_WIDTH * len(text)) for text in (left, right))
    return _BADGE.format(
        left=escape(left),
        right=escape(right),
        text_left=text_left,
        text_right=text_right,
        half_left=text_left + 9,
        start=text_left + 18,
        width=text_left + text_right + 24,
    )


def main() -> None:
    """Write the badges, or name those that are not as they would be written."""
    wanted = badges()
    if "--check" in sys.argv[1:]:
        old = [
            name
            for name, text in wanted.items()
            if not (IMAGES / name).is_file() or (IMAGES / name).read_text(encoding="utf-8") != text
        ]
        if old:
            sys.exit(f"not as the files say: {', '.join(old)}; `make findings` writes them")
        return
    for name, text in wanted.items():
        (IMAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
