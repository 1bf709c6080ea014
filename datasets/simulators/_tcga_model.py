"""A model of gene expression in three subtypes of breast cancer, in place of TCGA-BRCA.

The federated distillation paper classifies "tumor subtypes based on gene expression data" of 1,100
samples (its table 2) and prints neither the subtypes nor the genes. Classes, their shares (3 to 2
to 5) and the log2 scale are those of the open TCGA-BRCA table of this catalogue (breast.TCGA of
mixOmics: Basal, Her2 and LumA). Expression is drawn by `_factor_model`, with values and spreads of
the size found there.

Named genes are markers of the intrinsic subtypes, most of them of the PAM50 panel (J. S. Parker et
al., Journal of Clinical Oncology 27:1160, 2009), with the directions known since C. M. Perou et al.
(Nature 406:747, 2000): oestrogen receptor and luminal genes high in LumA and low in Basal, the
amplified region around ERBB2 high in Her2, basal keratins high in Basal, proliferation high in
Basal and Her2. Every fourth of the other genes, called `gene_0001` and so on, has a small random
shift. Sizes of the shifts are assumed. A third of the tumours shows its subtype only in part, as
tumours near the border between two subtypes and those with much normal tissue do, so that the best
accuracy is below one; the paper's federated models reach 79%, a central model on the open table 93
to 96%.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from bench.datasets.simulators._factor_model import (
    BayesScores,
    DiseaseState,
    FactorModel,
    Ranges,
    random_panel,
)

PAPER_ROWS: int = 1_100
TARGET_COLUMN = "subtype"
SUBTYPES: tuple[str, ...] = ("Basal", "Her2", "LumA")
SHARES: tuple[int, ...] = (3, 2, 5)
MINIMUM_ROWS: int = 60
MAXIMUM_GENES: int = 20_000

MARKERS: Mapping[str, tuple[float, float, float]] = {
    "ESR1": (-1.0, -0.3, 0.7),
    "PGR": (-0.6, -0.4, 0.5),
    "GATA3": (-0.9, 0.0, 0.5),
    "FOXA1": (-1.1, 0.2, 0.4),
    "XBP1": (-0.8, 0.0, 0.4),
    "MLPH": (-0.9, 0.2, 0.4),
    "NAT1": (-0.6, -0.3, 0.5),
    "BCL2": (-0.5, -0.4, 0.5),
    "ERBB2": (-0.3, 1.1, -0.2),
    "GRB7": (-0.3, 1.0, -0.2),
    "FGFR4": (-0.2, 0.7, -0.2),
    "TMEM45B": (-0.2, 0.5, -0.1),
    "KRT5": (0.7, -0.2, -0.2),
    "KRT14": (0.6, -0.2, -0.2),
    "KRT17": (0.7, -0.2, -0.3),
    "FOXC1": (0.9, -0.3, -0.3),
    "EGFR": (0.5, -0.1, -0.2),
    "MIA": (0.7, -0.2, -0.2),
    "MKI67": (0.5, 0.3, -0.5),
    "CCNB1": (0.5, 0.3, -0.5),
    "BIRC5": (0.5, 0.3, -0.5),
    "UBE2C": (0.5, 0.3, -0.5),
    "MYBL2": (0.6, 0.3, -0.5),
    "CDC20": (0.5, 0.2, -0.4),
}
"""Shift of the score in Basal, Her2 and LumA, in standard deviations within a subtype."""
SMALL_SHIFT: float = 0.15
"""Standard deviation of the shifts of every fourth of the other genes."""
STATES: tuple[DiseaseState, ...] = (
    DiseaseState(chance=0.67, share=1.0),
    DiseaseState(chance=0.33, share=0.45),
)

FACTORS: int = 12
BOUNDS: tuple[float, float] = (-10.0, 20.0)
RANGES = Ranges(mean=(3.0, 8.0), spread=(0.7, 1.3), skewness=(0.01, 0.10))
_PARAMETER_STREAM: int = 490
_SHIFT_STREAM: int = 61
_MONTE_CARLO_DRAWS: int = 200_000


def class_counts(rows: int) -> tuple[int, ...]:
    """Tumours of each subtype in a table of `rows`: constants, not draws. LumA gets the rest."""
    smaller = [round(rows * share / sum(SHARES)) for share in SHARES[:-1]]
    return (*smaller, rows - sum(smaller))


def gene_names(genes: int) -> tuple[str, ...]:
    """Return the markers, then `gene_0001` and so on."""
    others = (f"gene_{number:04d}" for number in range(1, genes - len(MARKERS) + 1))
    return (*MARKERS, *others)


@cache
def panel(genes: int) -> FactorModel:
    """Return the model of the first `genes` genes, always with the same parameters."""
    rng = np.random.default_rng(_SHIFT_STREAM)
    shifts = np.zeros((len(SUBTYPES), genes))
    shifts[:, : len(MARKERS)] = np.array(list(MARKERS.values())).T
    for gene in range(len(MARKERS), genes, 4):
        shifts[:, gene] = SMALL_SHIFT * rng.standard_normal(len(SUBTYPES))
    return random_panel(
        gene_names(genes), shifts, STATES, BOUNDS, FACTORS, RANGES, _PARAMETER_STREAM
    )


def simulate(rows: int, genes: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a table of expressions and subtypes with exactly `class_counts(rows)`."""
    labels = rng.permutation(np.repeat(np.arange(len(SUBTYPES)), class_counts(rows)))
    frame = panel(genes).simulate(labels, rng)
    subtypes = pd.Categorical.from_codes(labels.tolist(), categories=pd.Index(SUBTYPES))
    return pd.concat([frame, pd.Series(subtypes, name=TARGET_COLUMN)], axis=1)


@cache
def bayes_scores(genes: int) -> BayesScores:
    """Return the scores of the best classifier with so many genes."""
    return panel(genes).bayes_scores(SHARES, _MONTE_CARLO_DRAWS, _PARAMETER_STREAM)
