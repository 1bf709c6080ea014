"""One cell as a page: what was asked, the verdict, the four epsilons, scores, cost, how to repeat.

A single file without scripts or outside parts: it opens from a disk, in MLflow, and on paper.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from bench.plugins.metric import Direction, Family
from bench.results.records import AuditRow, CellRow, ScoreRow, Status
from bench.results.reproduce import json_object, repeat

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["cell_report", "cell_title", "epsilons_in_words", "json_object", "repeat"]

_GOOD = (Status.OK.value, Status.SKIPPED.value)

_WORSE = {
    Direction.HIGHER.value: lambda value, limit: value < limit,
    Direction.LOWER.value: lambda value, limit: value > limit,
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1f23; background: #fff;
  max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; border-bottom: 1px solid #ccd; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid #e6e8ec; overflow-wrap: anywhere; }
th { font-weight: 600; overflow-wrap: normal; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { border-left: .4rem solid #667; padding: .3rem .8rem; background: #f4f5f7; }
.verdict.good { border-color: #1a7f37; } .verdict.bad { border-color: #b3261e; }
.note { color: #555; } .over { color: #b3261e; font-weight: 600; }
pre { background: #f4f5f7; padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  h2 { break-after: avoid; } tr, pre, .verdict { break-inside: avoid; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="note">{{ row.task or "unknown task" }}; finished {{ row.finished_at }};
status <strong>{{ row.status }}</strong>{% if row.reason %}: {{ row.reason }}{% endif %}</p>
<p class="verdict {{ tone }}"><strong>{{ row.verdict or "no verdict" }}</strong>
{%- if row.verdict_reason %}: {{ row.verdict_reason }}{% endif %}
{%- if row.study_only %}<br>Study only: the noise is seeded, so that the cell can be repeated;
whoever knows the code and the seed can subtract it.{% endif %}
{%- for warning in warnings %}<br>Beware: {{ warning }}{% endfor %}</p>

<h2>The four epsilons</h2>
<table>
{%- for name, number, words in epsilons %}
<tr><th>{{ name }}</th><td class="number">{{ number }}</td><td>{{ words }}</td></tr>
{%- endfor %}
</table>
<p class="note">delta {{ "%g" | format(row.delta) }}; neighbours: {{ row.adjacency }}; unit of
privacy: {{ row.unit or "unknown" }}; counts of rows are
{{ "paid for" if row.private_counts else "public by declaration" }}.</p>
{%- if audit %}

<h2>Audit</h2>
<table>
{%- for name, value in audit %}
<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{%- endfor %}
</table>
{%- endif %}
{% for family, scores in families %}
<h2>Scores: {{ family }}</h2>
<table>
<tr><th>metric</th><th>value</th><th>95% interval</th><th>better</th><th>limit</th><th></th></tr>
{%- for score in scores %}
<tr><td>{{ score.metric }}</td><td class="number">{{ score.value }}</td>
<td class="number">{{ score.interval }}</td><td>{{ score.better }}</td>
<td class="number">{{ score.limit }}{% if score.over %} <span class="over">not met</span>
{%- endif %}</td><td>{{ score.remark }}</td></tr>
{%- endfor %}
</table>
{% endfor %}
{%- if absent %}
<h2>Scores without a value</h2>
<table>
{%- for reason, names in absent %}
<tr><td>{{ names }}</td><td>{{ reason }}</td></tr>
{%- endfor %}
</table>
{%- endif %}

<h2>Cost</h2>
<table>
{%- for name, value in cost %}
<tr><th>{{ name }}</th><td class="number">{{ value }}</td></tr>
{%- endfor %}
</table>
{%- if row.log_tail %}

<h2>Last lines of its output</h2>
<pre>{{ row.log_tail }}</pre>
{%- endif %}

<h2>Make it again</h2>
{%- if repeat.grid %}
<p>Save as <code>cell.toml</code>:</p>
<pre>{{ repeat.grid }}</pre>
{%- endif %}
<pre>{{ repeat.command }}</pre>
<p class="note">{% if row.study_only %}The same source, libraries and data give the same rows.
{%- else %}Secure noise: another run spends another budget and gives other rows.{% endif %}
Data files that you obtained are found with <code>--data-dir</code>.</p>

<h2>Facts</h2>
<table>
{%- for name, value in facts %}
<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{%- endfor %}
</table>
</body>
</html>
"""


@final
@dataclass(frozen=True)
class _Line:
    metric: str
    value: str
    interval: str
    better: str
    limit: str
    over: bool
    remark: str


def cell_report(row: CellRow, scores: Sequence[ScoreRow], audit: AuditRow | None = None) -> str:
    """A self-contained HTML page about a cell."""
    return _template().render(
        title=cell_title(row),
        row=row,
        tone=_tone(row),
        warnings=[text for text in row.warnings.split("; ") if text],
        epsilons=epsilons_in_words(row),
        audit=_audit(row, audit),
        families=_families(scores),
        absent=_absent(scores),
        cost=_cost(row),
        repeat=repeat(row),
        facts=_facts(row),
    )


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)


def cell_title(row: CellRow) -> str:
    """The cell in one line."""
    size = "full size" if row.full_size else ("" if row.ipc is None else f"ipc {row.ipc}")
    spend = "" if row.eps_target is None else f"epsilon {row.eps_target:g}"
    attack = f"{row.attack} audit" if row.attack else ""
    parts = (f"{row.label} on {row.dataset}", size, spend, f"seed {row.seed}", attack)
    return ", ".join(part for part in parts if part)


def _tone(row: CellRow) -> str:
    if row.verdict.startswith("sound"):
        return "good"
    return "bad" if "refuted" in row.verdict or row.status not in _GOOD else ""


def epsilons_in_words(row: CellRow) -> list[tuple[str, str, str]]:
    """Name, number and meaning of each of the four."""
    by = f" by {row.accountant}" if row.accountant else ""
    target = "what the method was allowed to spend"
    claimed = f"what the method says it spent ({row.claim_source}); not trusted"
    proven = f"upper bound that follows from the ledger{by}"
    audited = "lower bound that an attack has shown"
    if row.eps_proven is None:
        proven = "not computed: the cell did not come so far"
    elif math.isinf(row.eps_proven):
        proven = "no bound follows: rows were read without noise, or no accountant knows a step"
    return [
        ("target", _number(row.eps_target), target if row.eps_target else "the method uses none"),
        (
            "claimed",
            _number(row.eps_claimed),
            claimed if row.eps_claimed is not None else "the method claims nothing",
        ),
        ("proven", _number(row.eps_proven), proven),
        (
            "audited",
            _number(row.eps_audited),
            audited if row.eps_audited is not None else "not audited",
        ),
    ]


def _audit(row: CellRow, audit: AuditRow | None) -> list[tuple[str, str]]:
    """What an audit measured; which numbers it refutes is decided over all audits together."""
    if audit is None:
        return []
    replicated = "" if audit.replicated_eps is None else f"{_number(audit.replicated_eps)} or more"
    lines = (
        ("attack", f"{row.attack}, {audit.trials} trials counted, {audit.refits} refits"),
        ("maximum detectable epsilon", _number(audit.eps_detectable)),
        ("epsilon if its noise is Gaussian", _number(audit.eps_gaussian)),
        ("canary and scorer", f"{audit.canary}; {audit.scorer}"),
        ("p-values of claim and proof", f"{audit.p_claim:.2g}, {audit.p_proof:.2g}"),
        ("replicated epsilon", replicated),
        ("share of planted bugs found", f"{_number(audit.planted)} ({audit.planted_bug})"),
    )
    return [(name, text) for name, text in lines if text]


def _families(scores: Sequence[ScoreRow]) -> list[tuple[str, list[_Line]]]:
    known = [family.value for family in Family]
    names = [*known, *sorted({score.family for score in scores} - set(known))]
    found = (
        (name, [_line(s) for s in scores if s.family == name and s.value is not None])
        for name in names
    )
    return [(name, lines) for name, lines in found if lines]


def _line(score: ScoreRow) -> _Line:
    value, limit = score.value, score.limit
    worse = _WORSE.get(score.direction)
    over = worse is not None and value is not None and limit is not None and worse(value, limit)
    interval = ""
    if score.low is not None or score.high is not None:
        interval = f"[{_number(score.low)}, {_number(score.high)}]"
    better = "" if score.direction == Direction.NEUTRAL.value else score.direction
    shown = "" if limit is None else _number(limit)
    return _Line(score.metric, _number(value), interval, better, shown, over, score.remark)


def _absent(scores: Sequence[ScoreRow]) -> list[tuple[str, str]]:
    """Reasons, each with the metrics that have it."""
    missing = sorted((s for s in scores if s.value is None), key=lambda s: (s.reason, s.metric))
    groups = itertools.groupby(missing, key=lambda score: score.reason)
    return [(reason or "no reason given", _joined(s.metric for s in own)) for reason, own in groups]


def _cost(row: CellRow) -> list[tuple[str, str]]:
    values = (
        ("fit", row.fit_seconds, " s"),
        ("scores", row.score_seconds, " s"),
        ("peak memory", row.peak_memory_mb, " MB"),
        ("rows released", row.rows_released, ""),
    )
    return [(name, "-" if v is None else f"{_amount(v)}{unit}") for name, v, unit in values]


def _amount(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"


def _facts(row: CellRow) -> list[tuple[str, str]]:
    notes = [(f"note: {name}", str(value)) for name, value in json_object(row.notes).items()]
    versions = _joined(f"{name} {version}" for name, version in json_object(row.versions).items())
    return [
        ("method", f"{row.method} {_parameters(row.parameters)}"),
        ("dataset", f"{row.dataset_name or row.dataset} {_parameters(row.dataset_parameters)}"),
        ("split", f"{row.split}, seed {row.split_seed}"),
        *notes,
        ("versions", versions),
        ("fingerprint of the data", row.fingerprint),
        ("hash of the source", row.source_hash),
        ("key", row.key),
    ]


def _parameters(document: str) -> str:
    given = json_object(document)
    return f"({_joined(f'{name} = {value}' for name, value in given.items())})" if given else ""


def _joined(items: Iterable[str]) -> str:
    return ", ".join(items)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "infinite" if math.isinf(value) else f"{value:.4g}"
