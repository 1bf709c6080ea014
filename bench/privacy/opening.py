"""Puts a dataset behind the privacy kernel for one cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.data.dataset import Counts, Dataset
from bench.data.encoder import EncodedRows
from bench.errors import InputError
from bench.privacy.accounting import Budget
from bench.privacy.events import non_private
from bench.privacy.interception import Interceptor, PassThrough
from bench.privacy.kernel import PrivateData, Vault
from bench.privacy.ledger import UNITS, Entry, Ledger
from bench.privacy.noise import NoiseSource

COUNTS_SHARE = 0.05
"""Share of epsilon that `--private-counts` spends on the counts."""


def open_private(
    dataset: Dataset,
    budget: Budget | None,
    noise: NoiseSource,
    *,
    delta: float = 1e-5,
    private_counts: bool = False,
    check_rows: bool = False,
    interceptor: Interceptor | None = None,
    public_entropy: int = 0,
    unit: str = "",
) -> tuple[PrivateData, Ledger]:
    """Put training and validation rows behind one ledger; control and test rows stay outside.

    A row is in one of them. So is a patient, who is one row; a client has rows in both, which the
    ledger composes.
    """
    unit = unit or dataset.declaration.unit
    if unit not in UNITS:
        raise InputError(
            f"unit of privacy {unit!r} is unknown; expected one of {', '.join(UNITS)}. Correct "
            "`unit` in the dataset's TOML file, or in the method's class"
        )
    ledger = Ledger(budget=budget, delta=delta, unit=unit)
    vault = Vault(ledger, noise, check_rows, interceptor or PassThrough(), public_entropy)
    if dataset.schema.inferred:
        reason = "bounds and categories were inferred from the rows"
        ledger.add(Entry((), non_private(), reason=reason))
    validation = PrivateData(
        dataset.validation.rows,
        dataset.encoder,
        dataset.validation_counts,
        vault,
        (("split", "validation"),),
    )
    private = PrivateData(
        dataset.train.rows,
        dataset.encoder,
        dataset.counts,
        vault,
        (("split", "train"),),
        validation,
    )
    if private_counts and budget is not None:
        # Train and validation are disjoint parts: the second histogram costs nothing more. For
        # clients they are not, and the first histogram is refused.
        for part in (private, validation):
            part.counts = _noisy_counts(part, dataset, COUNTS_SHARE * budget.epsilon)
    return private, ledger


def _noisy_counts(private: PrivateData, dataset: Dataset, epsilon: float) -> Counts:
    """Return noisy counts of every class and site: one Laplace histogram, sensitivity one.

    Rates derived from them depend on an output, so all later events are accounted as adaptive.
    """
    classes = len(dataset.schema.classes)
    site = dataset.schema.site
    sites = site.categories if site is not None else ("",)

    def cells(rows: EncodedRows) -> npt.NDArray[np.int64]:
        return (rows.sites * classes + rows.labels)[:, None]

    (noisy,) = private.histograms(cells, [len(sites) * classes], 1.0 / epsilon, mechanism="laplace")
    table = np.maximum(1, np.rint(noisy)).astype(int).reshape(len(sites), classes)
    by_site_class = {
        name: tuple(int(count) for count in row) for name, row in zip(sites, table, strict=True)
    }
    by_class = tuple(int(count) for count in table.sum(axis=0))
    if site is None:
        return Counts(sum(by_class), by_class, paid=True)
    by_site = {name: sum(counts) for name, counts in by_site_class.items()}
    return Counts(sum(by_class), by_class, by_site, by_site_class, paid=True)
