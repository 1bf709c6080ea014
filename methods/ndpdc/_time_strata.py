"""Strata for survival: event status by time bin, with bins at noisy quantiles that are paid for.

Condensation by class needs classes. As in zero-order DC (equation 11) a survival dataset is cut by
event status and, within it, into time bins that hold about as many rows each. The quantiles come
from one noisy histogram of the public time range for each event status; the bins then follow from
that output alone, and a row's bin from that row and the bins. The sampling rate of a bin uses the
declared count of its event status divided by the number of bins, never a count of rows.

Everything can be planned before the first output: the parts' names, rates and noise are known,
only the cuts are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import EncodedRows, Floats, PlannedEvents, PrivateData, gaussian, sampled_gaussian

_CELLS = 64
"""Cells of the histogram, equal in width over the public time range."""

_PARTITION = "time bin"


@final
@dataclass(frozen=True)
class Stratum:
    """Rows of one event status and time bin, and the bin's ends as encoded times."""

    part: PrivateData
    low: float
    high: float


@final
@dataclass(frozen=True)
class TimeStrata:
    """How each event status is cut, and how often every bin is then asked."""

    bins: int
    group_size: float
    iterations: int

    def rate(self, part: PrivateData) -> float:
        """Poisson rate in a bin of this event status."""
        return min(1.0, self.group_size / max(1, round(part.counts.total / self.bins)))

    def histogram_noise(self, part: PrivateData, noise: float) -> float:
        """Noise at which the histogram costs a tenth of the sums that follow.

        I sampled sums cost about I (rate / noise)^2 and the histogram 1 / noise^2.
        """
        return float(noise / (self.rate(part) * np.sqrt(0.1 * self.iterations)))

    def plans(self, part: PrivateData, noise: float) -> list[PlannedEvents]:
        """The histogram of one event status, and the sums of its bins."""
        histogram = part.plan(gaussian(self.histogram_noise(part, noise)))
        sums = sampled_gaussian(self.rate(part), noise)
        return [histogram] + [
            PlannedEvents((*histogram.path, (_PARTITION, name)), sums, self.iterations)
            for name in self._names()
        ]

    def cut(self, part: PrivateData, noise: float) -> list[Stratum]:
        """Ask for the histogram, and cut the event status at its quantiles."""
        histogram = part.histograms(
            lambda rows: _cells(rows)[:, None], [_CELLS], self.histogram_noise(part, noise)
        )[0]
        edges = quantile_edges(histogram, self.bins)

        def bin_of(rows: EncodedRows) -> list[str]:
            return [str(number) for number in np.searchsorted(edges[1:-1], _time(rows), "right")]

        parts = part.partition(bin_of, self._names(), name=_PARTITION)
        return [
            Stratum(piece, float(edges[number]), float(edges[number + 1]))
            for number, piece in enumerate(parts.values())
        ]

    def _names(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.bins))


def quantile_edges(histogram: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    """Ends of `bins` bins of equal mass on [-1, 1]; negative counts are noise, taken as none.

    A little mass everywhere keeps the ends apart, and makes them equidistant where the counts
    hold nothing.
    """
    mass = np.maximum(histogram, 0.0)
    mass = mass + max(1e-3 * mass.sum(), 1.0) / len(mass)
    below = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    ends = np.linspace(-1.0, 1.0, len(mass) + 1)
    edges = np.interp(np.linspace(0.0, 1.0, bins + 1), below, ends)
    edges[0], edges[-1] = -1.0, 1.0
    return edges


def time_edges(times: Floats, bins: int) -> Floats:
    """Ends of `bins` bins of as many rows each on [-1, 1]; equidistant where there are no rows.

    Exact quantiles, for methods without privacy.
    """
    inner = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    cuts = np.quantile(times, inner) if len(times) else 2.0 * inner - 1.0
    return np.concatenate([[-1.0], cuts, [1.0]])


def _time(rows: EncodedRows) -> npt.NDArray[np.float64]:
    return np.asarray(rows.values[:, -1], dtype=np.float64)


def _cells(rows: EncodedRows) -> npt.NDArray[np.int64]:
    return np.clip((_time(rows) + 1.0) / 2.0 * _CELLS, 0, _CELLS - 1).astype(np.int64)
