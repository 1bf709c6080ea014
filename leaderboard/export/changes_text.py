"""Changes between two runs as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from bench.leaderboard.pages import show
from bench.leaderboard.ranking.changes import Change, Changes, UtilityChange, Where


def to_text(found: Changes) -> str:
    """What changed, in plain lines; the last one says whether anything got worse."""
    differing = [change for change in found.utility if change.old != change.new]
    tested = [change for change in differing if change.p_holm is not None]
    significant = [change for change in tested if change.significant]
    lines = [
        f"{found.cells} cells in both runs, {found.only_old} only in the old one, "
        f"{found.only_new} only in the new one.",
    ]
    for what, names in (("methods", found.sources), ("datasets", found.data)):
        if names:
            listed = ", ".join(plain(name) for name in names)
            lines.append(f"Other code or contents than before, {what}: {listed}.")
    lines += [
        f"Utility: {len(found.utility)} rows compared, {len(differing)} differ, "
        f"{len(significant)} significantly (level {found.alpha:g}, Holm over {len(tested)}).",
        *(_utility_line(change) for change in significant),
    ]
    if any(change.seeds == 1 for change in significant):
        lines.append("  (of one seed: its interval knows the test rows, not the seed's own chance)")
    unknown = [change for change in differing if change.gain is None]
    if unknown:
        lines.append("Utility differs, but no interval and no second seed say by what chance:")
        lines += [_utility_line(change) for change in unknown]
    for title, changes in (
        ("Verdicts changed", found.verdicts),
        ("Proven epsilons changed", found.proven),
        ("No longer ok", found.failing),
        ("Newly ok", found.finished),
    ):
        lines.append(f"{title}: {sum(len(change.seeds) for change in changes)} cells.")
        lines += _change_lines(changes)
    lines.append(_conclusion(found))
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text of a stranger's run without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)


def _conclusion(found: Changes) -> str:
    worse = sum(change.worse for change in found.utility)
    reasons = [
        f"{count} {what}"
        for count, what in (
            (worse, "significantly worse"),
            (len(found.verdicts), "with another verdict"),
            (len(found.failing), "no longer ok"),
        )
        if count
    ]
    return f"Check failed: {', '.join(reasons)}." if reasons else "Check passed: nothing got worse."


def _utility_line(change: UtilityChange) -> str:
    text = f"{_where(change.where)}: {plain(change.metric)} "
    text += f"{show.number(change.old)} -> {show.number(change.new)}"
    word = "differs"
    if change.gain is not None:
        word = "worse" if change.gain.value < 0 else "better"
        text += f", gain {change.gain.value:+.4f} [{change.gain.low:+.4f}, {change.gain.high:+.4f}]"
    if change.p_holm is not None:
        text += f", corrected p {change.p_holm:.2g}"
    return f"  {word}: {text}, {change.seeds} seed{'' if change.seeds == 1 else 's'}"


def _change_lines(changes: Sequence[Change]) -> list[str]:
    return [
        f"  {_where(change.where)}, {show.seeds(change.seeds)}: {plain(change.old)} -> "
        f"{plain(change.new)}" + (f" ({plain(change.reason)})" if change.reason else "")
        for change in changes
    ]


def _where(where: Where) -> str:
    text = f"{where.entrant} on {where.cohort}, {show.sizes((where.size,))}"
    if where.target is not None:
        text += f", eps {where.target:g}"
    return plain(f"{text} ({where.setting})" if where.setting else text)
