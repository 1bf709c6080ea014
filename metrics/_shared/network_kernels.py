"""The training loop of a network with one hidden layer. Import this lazily: it imports numba.

It does what `MLPClassifier` of scikit-learn does with the same settings, step by step and from the
same random numbers, without the calls between two matrix products that take most of its time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.kernels import compiled

Matrix = npt.NDArray[np.float32]
"""Single precision throughout: a step moves a weight by far more than the rounding."""

DECAY, SQUARED_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's defaults (Kingma and Ba, 2015)."""


@compiled()
def _adam(
    weights: Matrix, gradient: Matrix, mean: Matrix, square: Matrix, rate: float, penalty: float
) -> None:
    """One step of Adam on weights whose loss has the gradient plus `penalty` times the weights."""
    step, shrink = np.float32(rate), np.float32(penalty)
    decay, squared_decay = np.float32(DECAY), np.float32(SQUARED_DECAY)
    fresh, squared_fresh = np.float32(1.0 - DECAY), np.float32(1.0 - SQUARED_DECAY)
    tiny = np.float32(TINY)
    for row in range(weights.shape[0]):
        w, g, m, v = weights[row], gradient[row], mean[row], square[row]
        for column in range(weights.shape[1]):
            slope = g[column] + shrink * w[column]
            m[column] = decay * m[column] + fresh * slope
            v[column] = squared_decay * v[column] + squared_fresh * (slope * slope)
            w[column] -= step * m[column] / (np.sqrt(v[column]) + tiny)


@compiled()
def _output_errors(outputs: Matrix, truth: Matrix, weights: Matrix) -> None:
    """Turn outputs before the last activation into weighted errors after it, in place.

    One output is a logistic one; several are a softmax. Both have the gradient prediction - truth.
    """
    rows, width = outputs.shape
    one = np.float32(1.0)
    for row in range(rows):
        values = outputs[row]
        if width == 1:
            values[0] = one / (one + np.exp(-values[0]))
        else:
            most = values[0]
            for column in range(1, width):
                most = max(most, values[column])
            total = np.float32(0.0)
            for column in range(width):
                values[column] = np.exp(values[column] - most)
                total += values[column]
            for column in range(width):
                values[column] /= total
        for column in range(width):
            values[column] = (values[column] - truth[row, column]) * weights[row, 0]


@compiled()
def train(
    features: Matrix,
    truth: Matrix,
    weights: Matrix,
    orders: npt.NDArray[np.int64],
    batch: int,
    rate: float,
    alpha: float,
    hidden: Matrix,
    hidden_bias: Matrix,
    last: Matrix,
    last_bias: Matrix,
) -> bool:
    """Train in place; `orders` has the order of the rows in each epoch.

    Return whether all weights, and what Adam keeps of their gradients, stayed finite.

    Biases are (1, width) and `weights` (rows, 1). The penalty is alpha / 2 times the squared
    weights, over the total weight of the rows of a batch.
    """
    rows = len(features)
    states = (
        (np.zeros_like(hidden), np.zeros_like(hidden), np.empty_like(hidden)),
        (np.zeros_like(hidden_bias), np.zeros_like(hidden_bias), np.empty_like(hidden_bias)),
        (np.zeros_like(last), np.zeros_like(last), np.empty_like(last)),
        (np.zeros_like(last_bias), np.zeros_like(last_bias), np.empty_like(last_bias)),
    )
    step = 0
    width, outputs = hidden.shape[1], last.shape[1]
    for epoch in range(len(orders)):
        for start in range(0, rows, batch):
            size = min(batch, rows - start)
            taken = np.empty((size, features.shape[1]), dtype=np.float32)
            right = np.empty((size, outputs), dtype=np.float32)
            weight = np.empty((size, 1), dtype=np.float32)
            total = 0.0
            for place in range(size):
                row = orders[epoch, start + place]
                # Element by element: numba takes seconds to compile the assignment of a slice.
                for column in range(features.shape[1]):
                    taken[place, column] = features[row, column]
                for output in range(outputs):
                    right[place, output] = truth[row, output]
                weight[place, 0] = weights[row, 0]
                total += weights[row, 0]
            middle = np.dot(taken, hidden)
            for place in range(size):
                for unit in range(width):
                    value = middle[place, unit] + hidden_bias[0, unit]
                    # What is not a number stays so: a network that diverges is noticed.
                    middle[place, unit] = np.float32(0.0) if value <= 0 else value
            errors = np.dot(middle, last)
            for place in range(size):
                for output in range(outputs):
                    errors[place, output] += last_bias[0, output]
            _output_errors(errors, right, weight)
            share = np.float32(1.0 / total)
            for place in range(size):
                for output in range(outputs):
                    errors[place, output] *= share
            back = np.dot(errors, last.T)
            bias_gradient, last_bias_gradient = states[1][2], states[3][2]
            for unit in range(width):
                bias_gradient[0, unit] = 0
            for output in range(outputs):
                last_bias_gradient[0, output] = 0
            for place in range(size):
                for unit in range(width):
                    if middle[place, unit] <= 0:
                        back[place, unit] = 0
                    bias_gradient[0, unit] += back[place, unit]
                for output in range(outputs):
                    last_bias_gradient[0, output] += errors[place, output]
            np.dot(taken.T, back, states[0][2])
            np.dot(middle.T, errors, states[2][2])
            step += 1
            scaled = rate * np.sqrt(1.0 - SQUARED_DECAY**step) / (1.0 - DECAY**step)
            penalty = alpha / total
            _adam(hidden, states[0][2], states[0][0], states[0][1], scaled, penalty)
            _adam(hidden_bias, bias_gradient, states[1][0], states[1][1], scaled, 0.0)
            _adam(last, states[2][2], states[2][0], states[2][1], scaled, penalty)
            _adam(last_bias, last_bias_gradient, states[3][0], states[3][1], scaled, 0.0)
    finite = True
    for part in (hidden, hidden_bias, last, last_bias):
        finite &= bool(np.isfinite(part).all())
    for state in states:
        finite &= bool(np.isfinite(state[1]).all())
    return finite


@compiled()
def outputs(
    features: Matrix, hidden: Matrix, hidden_bias: Matrix, last: Matrix, last_bias: Matrix
) -> npt.NDArray[np.float64]:
    """Return the outputs before the last activation.

    Row by row and in one order: equal rows get equal bytes, hence are ties, wherever they stand. A
    matrix product does not promise that.
    """
    width = hidden.shape[1]
    result = np.empty((len(features), last.shape[1]))
    middle = np.empty(width, dtype=np.float32)
    for row in range(len(features)):
        for unit in range(width):
            middle[unit] = hidden_bias[0, unit]
        for column in range(features.shape[1]):
            value, weights = features[row, column], hidden[column]
            for unit in range(width):
                middle[unit] += value * weights[unit]
        for output in range(last.shape[1]):
            total = np.float64(last_bias[0, output])
            for unit in range(width):
                if middle[unit] > 0:
                    total += np.float64(middle[unit]) * np.float64(last[unit, output])
            result[row, output] = total
    return result
