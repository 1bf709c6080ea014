"""What the steps of a cell take: the stopwatch, and sums over the timings of a run."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from bench.results.records import TimingRow


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@final
class Stopwatch:
    """Measures steps one after the other."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), processor_seconds()

    def lap(self, key: str, phase: str, metric: str = "", reference: float = 0.0) -> TimingRow:
        """Return the time since the start as that of a step; it goes on."""
        wall = time.perf_counter() - self._wall
        processor = max(0.0, processor_seconds() - self._processor)
        return TimingRow(key, phase, metric, wall, processor, min(reference, processor))


def added_to(timings: Sequence[TimingRow], *more: TimingRow) -> tuple[TimingRow, ...]:
    """Return timings with others; times of the same step are added up."""
    steps: dict[tuple[str, str], TimingRow] = {}
    for one in (*timings, *more):
        known = steps.get((one.phase, one.metric))
        steps[one.phase, one.metric] = (
            one
            if known is None
            else replace(
                known,
                wall_seconds=known.wall_seconds + one.wall_seconds,
                processor_seconds=known.processor_seconds + one.processor_seconds,
                reference_seconds=known.reference_seconds + one.reference_seconds,
            )
        )
    return tuple(steps.values())


def with_metrics(
    timings: Sequence[TimingRow], metrics: Sequence[TimingRow]
) -> tuple[TimingRow, ...]:
    """Return timings with those of further metrics, which are added to the phase `score` too."""
    return added_to(timings, *metrics, *(replace(one, metric="") for one in metrics))


def kept(timings: Sequence[TimingRow], computed: Sequence[str]) -> tuple[TimingRow, ...]:
    """Return earlier timings of a cell whose release is scored again by these metrics.

    What is left of the phase `score` are the metrics that are not computed again.
    """
    phases = [one for one in timings if not one.metric and one.phase != "score"]
    metrics = [one for one in timings if one.metric and one.metric not in computed]
    return with_metrics(phases, metrics)
