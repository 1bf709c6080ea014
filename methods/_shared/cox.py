"""Cox's proportional hazards model, fitted by Newton's method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_NEWTON_STEPS = 50


def cox_coefficients(
    features: Array, times: Array, events: npt.NDArray[np.integer], penalty: float
) -> Array:
    """Log hazard ratios that maximise log L / n - penalty / 2 |b|^2, by Newton's method.

    b is per standard deviation, as in lifelines; ties are Breslow's, as in equation 9 of the
    zero-order paper, where lifelines has Efron's. Constant columns get 0.
    """
    spread = features.std(axis=0, ddof=1) if len(features) > 1 else np.zeros(features.shape[1])
    varying = spread > 1e-9
    scale = np.where(varying, spread, 1.0)
    order = np.argsort(-times, kind="stable")
    standard = (((features - features.mean(axis=0)) / scale) * varying)[order]
    falling = times[order]
    last = np.searchsorted(-falling, -falling, side="right") - 1
    happened = np.flatnonzero(np.asarray(events)[order] == 1)
    # Distinct event times, with the number of events at each.
    ends, counts = np.unique(last[happened], return_counts=True)
    # Rows that enter the risk sets between one event time and the next later one.
    block = np.searchsorted(ends, np.arange(len(falling)), side="left")
    total = standard[happened].sum(axis=0)
    size, width = len(features), features.shape[1]

    def parts(point: Array) -> tuple[float, Array, Array]:
        scores = standard @ point
        highest = float(scores.max())
        risks = np.exp(scores - highest)
        sums = np.cumsum(risks)[ends]
        means = np.cumsum(risks[:, None] * standard, axis=0)[ends] / sums[:, None]
        value = float(scores[happened].sum() - counts @ (np.log(sums) + highest))
        # Each row's weight in the information: events that it is at risk of.
        hazard = np.append(np.cumsum((counts / sums)[::-1])[::-1], 0.0)[block]
        information = (standard * (risks * hazard)[:, None]).T @ standard
        information -= (means * counts[:, None]).T @ means
        return value / size, (total - counts @ means) / size, information / size

    def penalised(point: Array, value: float) -> float:
        return value - penalty / 2 * float(point @ point)

    point = np.zeros(width)
    value, gradient, information = parts(point)
    for _ in range(_NEWTON_STEPS):
        slope = gradient - penalty * point
        step = np.linalg.solve(information + penalty * np.eye(width), slope)
        if float(slope @ step) < 1e-12:
            break
        now = penalised(point, value)
        for _ in range(30):
            proposal = point + step
            value, gradient, information = parts(proposal)
            if penalised(proposal, value) >= now - 1e-12 * abs(now):
                break
            step = step / 2
        point = proposal
    result: Array = point / scale * varying
    return result
