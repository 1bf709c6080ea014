"""A ledger in words: what each recorded step did, how often, and on which rows."""

from __future__ import annotations

import pathlib
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from bench.errors import BenchError, StoreError
from bench.leaderboard.dossier import words
from bench.privacy.ledger import Entry, Ledger, PartPath

_LARGEST_LEDGER = 2 << 20
"""A page is no place for more; the dossier of a release reads larger ones."""
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,199}")


@final
@dataclass(frozen=True)
class Step:
    """One kind of step of the ledger, with all parts that it was done in equally often."""

    mechanism: str
    times: str
    where: str
    note: str


def steps(ledger: Ledger) -> tuple[Step, ...]:
    """Entries in their order; equal ones in different parts become one line."""
    unit = words.unit_of(ledger.unit)
    alike: dict[tuple[Entry, int], list[PartPath]] = {}
    for entry, count in ledger.entries.items():
        anywhere = Entry((), entry.event, entry.adaptive, entry.reason, entry.trust)
        alike.setdefault((anywhere, count), []).append(entry.path)
    return tuple(
        Step(
            mechanism=words.mechanism(entry.event, unit),
            times=words.times(count) + (" in each part" if len(paths) > 1 else ""),
            where=words.places(paths),
            note="; ".join(_notes(entry)),
        )
        for (entry, count), paths in alike.items()
    )


def _notes(entry: Entry) -> Iterable[str]:
    if entry.reason:
        yield f"reason given: {entry.reason}"
    if entry.trust:
        yield f"done inside {entry.trust}, which is trusted"
    if entry.adaptive:
        yield "its parameters may depend on earlier results"


def stored_ledger(directory: pathlib.Path, key: str) -> Ledger | None:
    """The ledger of a release in a run directory; None where there is none.

    The directory may be a stranger's: a key that is no plain name, a link, or a file that is no
    ledger are refused with the reason.
    """
    if not _PLAIN_NAME.fullmatch(key):
        return None
    folder = directory / "releases" / key
    path = folder / "ledger.json"
    try:
        if folder.parent.is_symlink() or folder.is_symlink():
            raise StoreError("its folder is a symbolic link, which is not followed")
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("it is no plain file")
        if status.st_size > _LARGEST_LEDGER:
            raise StoreError(f"it is longer than {_LARGEST_LEDGER >> 20} MB; see the dossier")
        return Ledger.from_json(path.read_text(encoding="utf-8"))
    except StoreError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise StoreError(f"it cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise StoreError("it is not UTF-8") from None
    except (BenchError, RecursionError, ArithmeticError, AttributeError) as problem:
        raise StoreError(f"it cannot be read ({problem})") from None
