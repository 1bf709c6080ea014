"""Tables as the record distance sees them, and rows that an attack may be judged on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.core.dataset import Split
from bench.core.metric import Evaluation
from bench.metrics import _distance
from bench.metrics._distance import Records


def released_records(evaluation: Evaluation) -> Records:
    """The released rows, for the record distance."""
    return evaluation.shared(
        "records/released",
        lambda: Records.of(evaluation.dataset.encoder, evaluation.decoded),
    )


def real_records(evaluation: Evaluation, name: str, split: Split) -> Records:
    """The rows of a split as they would look if they had been released."""
    encoder = evaluation.dataset.encoder
    return evaluation.shared(
        f"records/{name}",
        lambda: Records.of(encoder, encoder.decode(split.rows.values, split.rows.labels)),
    )


def occurring_once(
    train: Records, control: Records
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows whose record occurs once in both tables together.

    A control row that also stands in train is no fresh row. To drop only those would leave the
    rare records among the control rows and the common ones, which are closer to any release,
    among the training rows: a gap without any copying. A record that occurs once is a training
    or a control row by the split's chance alone, wherever it lies.
    """
    of_train, of_control = _distance.identities(train, control)
    counts = np.bincount(np.concatenate([of_train, of_control]))
    return counts[of_train] == 1, counts[of_control] == 1
