"""Where the page of a method, a dataset or a cell stands within the site.

Names come from strangers: a path holds the harmless part of a name and a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re

FRONT = "index.html"
PLOTS = "plots.html"

_HARMLESS = re.compile(r"[^a-z0-9]+")


def method_path(entrant: str) -> str:
    """The page of a method, by its label."""
    return f"methods/{_stem(entrant)}.html"


def dataset_path(cohort: str) -> str:
    """The page of a dataset, by its label."""
    return f"datasets/{_stem(cohort)}.html"


def cell_path(key: str) -> str:
    """The page of a cell, by its key."""
    return f"cells/{_digest(key, 16)}.html"


def _stem(name: str) -> str:
    return f"{_HARMLESS.sub('-', name.lower()).strip('-')[:40]}-{_digest(name, 8)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
