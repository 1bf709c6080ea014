"""The list of library audits: what is called, what is looked for, and why it is found.

Events were fixed before the trials that are counted. File and line refer to the named version.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bench.audit.libraries import calls
from bench.audit.libraries.tables import EXTREME, ONLY
from bench.audit.libraries.target import CanaryKind, LibraryTarget
from bench.errors import UnknownNameError
from bench.plugins.method import Environment

DPMM = Environment("dpmm", ("dpmm==0.1.9",), ("dpmm",))
DATASYNTHESIZER = Environment(
    "datasynthesizer", ("DataSynthesizer==0.1.13", "numpy==1.26.4"), ("DataSynthesizer",)
)
MOSTLYAI = Environment("mostlyai-engine", ("mostlyai-engine==2.7.3",), ("mostlyai",))
OPENDP = Environment("opendp-mbi", ("opendp[mbi]==0.16.0",), ("opendp",))
# As `bench.methods._shared.smartnoise`: one environment serves both.
SMARTNOISE = Environment(
    "smartnoise",
    (
        "smartnoise-synth==1.0.8",
        "mbi==1.1.0",
        "opendp==0.14.2",
        "diffprivlib==0.6.6",
        "scikit-learn>=1.7,<1.8",
        "setuptools<81",
    ),
    ("snsynth", "diffprivlib"),
)

CATEGORICAL = ("diagnosis", "smoker", "outcome")
ALL = ("age", "bmi", *CATEGORICAL)
_ROWS = 300

IN_SYNTHETIC = "a synthetic row has the category that only the canary has"
NULL_IN_SYNTHETIC = "a synthetic row has a missing diagnosis"


def category_in_rows(synthetic: pd.DataFrame, known: pd.DataFrame) -> float:
    """Return the number of synthetic rows with the canary's category."""
    return float((synthetic["diagnosis"].astype(str) == ONLY).sum())


def missing_in_rows(synthetic: pd.DataFrame, known: pd.DataFrame) -> float:
    """Return the number of synthetic rows without a diagnosis."""
    return float(synthetic["diagnosis"].isna().sum())


def counted_categories(stats: Mapping[str, Any], known: pd.DataFrame) -> float:
    """Return how many categories more the statistics tell than the known table has."""
    column = stats["columns"]["diagnosis"]
    # One code stands for all categories that were not kept.
    told = len(column["codes"]) - 1 + column["no_of_rare_categories"]
    return float(told - known["diagnosis"].nunique())


def missing_in_codes(stats: Mapping[str, Any], known: pd.DataFrame) -> float:
    """Return 1 where a missing value is among the values that the model can sample."""
    return float(any("NULL" in code for code in stats["columns"]["diagnosis"]["codes"]))


def recomputed(description: str, known: pd.DataFrame) -> float:
    """Return 1 where the attacker's own description of the table with the canary is the same."""
    from bench.audit.libraries.tables import with_row

    return float(calls.datasynthesizer_with_domain(with_row(known)) == description)


def largest_mean(classifier: Any, known: pd.DataFrame) -> float:
    """Return the largest released mean, over ten times the largest number of all other rows."""
    limit = 10.0 * np.abs(known[["age", "bmi"]].to_numpy()).max()
    return float(np.abs(classifier.theta_).max() / limit)


def largest_norm(classifier: Any, known: pd.DataFrame) -> float:
    """Return the released norm, over ten times the largest norm of all other rows."""
    limit = 10.0 * np.linalg.norm(known[["age", "bmi"]].to_numpy(), axis=1).max()
    return float(classifier.data_norm / limit)


def category_in_classes(classifier: Any, known: pd.DataFrame) -> float:
    """Return 1 where the class of the canary is a class of the released model."""
    return float(ONLY in set(map(str, classifier.classes_)))


def category_in_bins(ebm: Any, known: pd.DataFrame) -> float:
    """Return 1 where the category is a bin of the released model."""
    place = list(ebm.feature_names_in_).index("diagnosis")
    return float(ONLY in ebm.bins_[place][0])


def bound_of_age(ebm: Any, known: pd.DataFrame) -> float:
    """Return the largest age of the released model, over ten times that of all other rows."""
    place = list(ebm.feature_names_in_).index("age")
    return float(ebm.feature_bounds_[place][1] / (10.0 * known["age"].max()))


_DPMM_CONTACT = "https://github.com/sassoftware/dpmm/issues"
_SMARTNOISE_CONTACT = "smartnoise@opendp.org (named in its README for security issues)"
_DATASYNTHESIZER_CONTACT = "https://github.com/DataResponsibly/DataSynthesizer/issues"
_MOSTLYAI_CONTACT = "https://github.com/mostly-ai/mostlyai-engine/issues"
_DIFFPRIVLIB_CONTACT = "https://github.com/IBM/differential-privacy-library/issues"
_INTERPRET_CONTACT = "https://github.com/interpretml/interpret/issues"

_DPMM_DIFFERS = (
    "`n_iters=20` instead of 1000: steps of the estimation after the last noisy answer, so that a "
    "fit takes half a second. Columns are categorical. Epsilon 1 of the model and 0.1 of the "
    "processing count as 1.1."
)
_SMARTNOISE_DIFFERS = "Epsilon is 1, and the columns are categorical."
_SMARTNOISE_CAUSE = (
    "No transformer is given, so that the synthesizer makes one from the rows "
    "(`snsynth/base.py:157`). `LabelTransformer._fit` (`snsynth/transform/label.py:20`) adds every "
    "value that it meets to the categories, without noise, a threshold or a charge to the budget. "
    "The category of one person becomes a value that the model can sample."
)
_SMARTNOISE_DOCUMENTED = (
    "The documentation says that bounds of continuous columns need budget or must be given, and "
    "warns of columns with more than 80% distinct strings (`snsynth/transform/type_map.py:191`). "
    "Of categories it says that inference is automatic; `LabelTransformer` takes no list of them."
)
_SMARTNOISE_INSTEAD = (
    "Encode every column into integers of a public list before `fit`, map what is not in the list "
    "to `other`, and make sure that every code occurs or pass a transformer whose `labels` and "
    "`categories` were set from the list. Our `mst`, `aim` and `mwem` do that."
)
_CALL_OF_DOCS = "Getting Started and the page of the synthesizer, docs.smartnoise.org/synth"


def _smartnoise(
    name: str, call: Any, trials: int, rows: int = _ROWS, **other: Any
) -> LibraryTarget:
    given: dict[str, Any] = {
        "name": f"smartnoise-{name}",
        "library": "smartnoise-synth",
        "version": "1.0.8",
        "package": "smartnoise-synth",
        "environment": SMARTNOISE,
        "call": call,
        "score": category_in_rows,
        "canary": CanaryKind.CATEGORY,
        "planted": {"diagnosis": ONLY},
        "event": IN_SYNTHETIC,
        "rows": rows,
        "columns": CATEGORICAL,
        "epsilon": 1.0,
        "delta": 1e-5,
        "trials": trials,
        "source": _CALL_OF_DOCS,
        "differs": _SMARTNOISE_DIFFERS,
        "cause": _SMARTNOISE_CAUSE,
        "documented": _SMARTNOISE_DOCUMENTED,
        "instead": _SMARTNOISE_INSTEAD,
        "contact": _SMARTNOISE_CONTACT,
    }
    return LibraryTarget(**(given | other))


def _dpmm(name: str, call: Any, **other: Any) -> LibraryTarget:
    given: dict[str, Any] = {
        "name": f"dpmm-{name}",
        "library": "dpmm",
        "version": "0.1.9",
        "package": "dpmm",
        "environment": DPMM,
        "call": call,
        "score": category_in_rows,
        "canary": CanaryKind.CATEGORY,
        "planted": {"diagnosis": ONLY},
        "event": IN_SYNTHETIC,
        "rows": _ROWS,
        "columns": CATEGORICAL,
        "epsilon": 1.1,
        "delta": 1e-5,
        "trials": 15,
        "source": "Quick Start Guide, Basic Example (docs/quickstart.rst)",
        "differs": _DPMM_DIFFERS,
        "cause": (
            "Without a domain `TableBinner.get_categories` takes `series.unique()` "
            "(`dpmm/processing/table_binner.py:147`): the category of one person is in the domain "
            "of the model, which samples it wherever noise makes its count positive."
        ),
        "documented": (
            "The library logs `PrivacyLeakage: No categorical domain provided for Column ... - "
            "will be imputed` for this call, and its README passes a domain. Its features promise "
            "that the domain is `either provided as input or extracted with DP`; for categories "
            "there is no extraction with DP. It says of itself that it is for research, not for "
            "production."
        ),
        "instead": "Pass `domain` with the categories of every column, from a data dictionary.",
        "contact": _DPMM_CONTACT,
    }
    return LibraryTarget(**(given | other))


def _diffprivlib(name: str, call: Any, **other: Any) -> LibraryTarget:
    given: dict[str, Any] = {
        "name": f"diffprivlib-{name}",
        "library": "diffprivlib",
        "version": "0.6.6",
        "package": "diffprivlib",
        "environment": SMARTNOISE,
        "call": call,
        "canary": CanaryKind.EXTREME,
        "planted": {"age": EXTREME},
        "rows": _ROWS,
        "columns": ALL,
        "epsilon": 1.0,
        "delta": 0.0,
        "trials": 25,
        "differs": "Our table instead of iris; epsilon is the default, 1.",
        "contact": _DIFFPRIVLIB_CONTACT,
    }
    return LibraryTarget(**(given | other))


def _interpret(name: str, call: Any, **other: Any) -> LibraryTarget:
    given: dict[str, Any] = {
        "name": f"interpret-{name}",
        "library": "interpret-core",
        "version": "0.7.8",
        "package": "interpret-core",
        "environment": None,
        "call": call,
        "rows": _ROWS,
        "columns": ALL,
        "epsilon": 1.0,
        "delta": 1e-5,
        "source": "DPExplainableBoostingClassifier in the API reference",
        "differs": "Nothing but the table.",
        "contact": _INTERPRET_CONTACT,
    }
    return LibraryTarget(**(given | other))


def _mostlyai(name: str, **other: Any) -> LibraryTarget:
    given: dict[str, Any] = {
        "name": f"mostlyai-{name}",
        "library": "mostlyai-engine",
        "version": "2.7.3",
        "package": "mostlyai-engine",
        "environment": MOSTLYAI,
        "call": calls.mostlyai_analysis,
        "canary": CanaryKind.CATEGORY,
        "rows": _ROWS,
        "columns": CATEGORICAL,
        "epsilon": 1.0,
        "delta": 1e-5,
        "source": "`analyze` and `DifferentialPrivacyConfig`, as `TabularARGN.fit` calls them",
        "differs": (
            "Only the first two steps of a fit, whose own budget is `value_protection_epsilon` = 1 "
            "(default). Training adds more, up to 10 in all (default), and samples from the "
            "values that this step has kept. torchvision is left out, which tables do not use."
        ),
        "contact": _MOSTLYAI_CONTACT,
    }
    return LibraryTarget(**(given | other))


@functools.cache
def targets() -> tuple[LibraryTarget, ...]:
    """Return all audits, those with short fits first."""
    return (
        _diffprivlib(
            "gaussian-nb",
            calls.diffprivlib_naive_bayes,
            score=largest_mean,
            event="a released mean is more than ten times the largest number of all other rows",
            source="README, `GaussianNB()` without any parameters",
            cause=(
                "`self.bounds = (np.min(X, axis=0), np.max(X, axis=0))` "
                "(`diffprivlib/models/naive_bayes.py:117`): noise and clipping follow from the "
                "exact range of the rows, so that one extreme row multiplies every released mean "
                "and variance."
            ),
            documented=(
                "Documented and warned about: the README says that this call throws a warning, and "
                "`PrivacyLeakWarning` says that bounds are `calculated on the data` and that this "
                "leaks. The README still calls the trained model `differentially private`."
            ),
            instead="`GaussianNB(bounds=(lower, upper))` with bounds that were not read from rows.",
        ),
        _diffprivlib(
            "logistic-regression",
            calls.diffprivlib_logistic_regression,
            score=largest_norm,
            event="`data_norm` of the model is more than ten times the norm of any other row",
            source="LogisticRegression in the API reference, default parameters",
            cause=(
                "`self.data_norm = np.linalg.norm(X, axis=1).max()` "
                "(`diffprivlib/models/logistic_regression.py:234`): the exact largest norm is an "
                "attribute of the fitted model, and scales its noise."
            ),
            documented=(
                "Documented and warned about: the class says that the norm is then `taken from the "
                "data` and raises `PrivacyLeakWarning`."
            ),
            instead="`LogisticRegression(data_norm=...)` with a public bound; rows are clipped.",
        ),
        _diffprivlib(
            "gaussian-nb-bounds",
            calls.diffprivlib_naive_bayes_with_bounds,
            score=category_in_classes,
            canary=CanaryKind.CATEGORY,
            planted={"diagnosis": ONLY},
            event="the class that only the canary has is a class of the model",
            source="README, `GaussianNB(bounds=bounds, epsilon=epsilon)`",
            differs="Our table instead of iris; the label is the diagnosis.",
            cause=(
                "`np.unique(y)` (`diffprivlib/models/naive_bayes.py:157` and `288`): the labels "
                "that occur are released as `classes_`. Counts of classes get noise, the list of "
                "them does not."
            ),
            documented=(
                "Not mentioned. The set of labels is public in most applications, and the "
                "guarantee holds given it; but nothing says that it has to be."
            ),
            instead=(
                "Map rare labels to `other` before `fit`, or add one public dummy row per label of "
                "a public list."
            ),
        ),
        _mostlyai(
            "missing",
            score=missing_in_codes,
            canary=CanaryKind.MISSING,
            planted={"diagnosis": None},
            event="a missing diagnosis is among the values that the model can sample",
            trials=25,
            cause=(
                "`has_nan` is `sum(values.isna()) > 0` "
                "(`mostlyai/engine/_encoding_types/tabular/categorical.py:63`), kept exactly: the "
                "token for missing values is a value of the model as soon as one row has none."
            ),
            documented=(
                "Not mentioned: value protection is described for values, by noisy histograms."
            ),
            instead="Fill missing values with a category of your own before `fit`.",
        ),
        _mostlyai(
            "category",
            score=counted_categories,
            planted={"diagnosis": ONLY},
            event="the statistics tell one category more than the known table has",
            trials=25,
            cause=(
                "`no_of_rare_categories` (`mostlyai/engine/_encoding_types/tabular/"
                "categorical.py:87`) is the exact number of categories that occur, less those that "
                "are kept: together they tell that one more occurs. From reading only: "
                "`dp_non_rare` (`mostlyai/engine/_common.py:813`) adds Laplace noise to the counts "
                "of the categories *that occur* and keeps those of at least 5; one that does not "
                "occur is never kept, so that the choice is (epsilon, delta)-DP with delta = "
                "exp(-(5 - 1) epsilon) / 2, not epsilon-DP as its docstring says. Epsilon is split "
                "over columns: with three of them and the default of 1 delta is about 0.2."
            ),
            documented=(
                "`analyze` says that it `generates (privacy-safe) column-level statistics`, and "
                "`dp_non_rare` that it `provides epsilon-differential privacy`. Where only samples "
                "and the model are published, the statistics stay in the workspace."
            ),
            instead=(
                "Map rare categories to `other` before `fit`, from a public list; publish samples, "
                "not the workspace. In the library: no exact number, and a threshold of 1 + "
                "log(1 / (2 delta)) / epsilon with the epsilon of the column."
            ),
        ),
        LibraryTarget(
            name="datasynthesizer",
            library="DataSynthesizer",
            version="0.1.13",
            package="DataSynthesizer",
            environment=DATASYNTHESIZER,
            call=calls.datasynthesizer,
            score=category_in_rows,
            canary=CanaryKind.CATEGORY,
            planted={"diagnosis": ONLY},
            event=IN_SYNTHETIC,
            rows=_ROWS,
            columns=ALL,
            epsilon=1.0,
            delta=0.0,
            trials=15,
            source="notebooks/DataSynthesizer__correlated_attribute_mode.ipynb",
            differs=(
                "The categorical column is ours. numpy 1.26: with numpy 2 the library fails when "
                "it reads its own description back."
            ),
            cause=(
                "`infer_domain` takes `data_dropna.unique()` "
                "(`DataSynthesizer/datatypes/AbstractAttribute.py:49`) and exact minima and maxima "
                "as the domain, without noise."
            ),
            documented=(
                "Documented: the README says that noise is injected `within active domain that are "
                "the values presented in the table`. It does not say that this is no differential "
                "privacy for a value that one person has."
            ),
            instead=(
                "Pass `categorical_attribute_domain_file` and `numerical_attribute_ranges`; and a "
                "secret random `seed` (see the next target)."
            ),
            contact=_DATASYNTHESIZER_CONTACT,
        ),
        LibraryTarget(
            name="datasynthesizer-seed",
            library="DataSynthesizer",
            version="0.1.13",
            package="DataSynthesizer",
            environment=DATASYNTHESIZER,
            call=calls.datasynthesizer_with_domain,
            score=recomputed,
            canary=CanaryKind.ROW,
            planted={},
            event=(
                "the released description equals the one that the attacker computes for the table "
                "with the canary"
            ),
            rows=_ROWS,
            columns=ALL,
            epsilon=1.0,
            delta=0.0,
            trials=15,
            source="notebooks/DataSynthesizer__correlated_attribute_mode.ipynb",
            differs=(
                "The domain of every column is declared, by the parameters that the library has "
                "for it. The default `seed=0` is not touched, as in the notebook."
            ),
            cause=(
                "`seed=0` is the default of `describe_dataset_in_correlated_attribute_mode` "
                "(`DataSynthesizer/DataDescriber.py:142`), which seeds numpy's global generator "
                "(`lib/utils.py:10`) before it draws the Laplace noise. Whoever knows the default "
                "knows the noise: the description is a deterministic function of the table."
            ),
            documented="The parameter is documented as `Seed the random number generator`.",
            instead="Pass a fresh secret `seed` for every release.",
            contact=_DATASYNTHESIZER_CONTACT,
        ),
        _dpmm("privbayes", calls.dpmm_privbayes),
        _dpmm(
            "missing",
            calls.dpmm_with_domain,
            score=missing_in_rows,
            canary=CanaryKind.MISSING,
            planted={"diagnosis": None},
            event=NULL_IN_SYNTHETIC,
            source="README, Getting Started: `fit(df, domain)`",
            cause=(
                "A column with at least one missing value gets an indicator column "
                "(`dpmm/processing/table_binner.py:216`), decided on the exact rows even if a "
                "domain is given: with one missing value the model has a column that it does not "
                "have without. Columns with a single value are dropped in the same way (line 234)."
            ),
            documented=(
                "The README says that missing values `are supported and will be reproduced "
                "accordingly if present in any column`; no warning is logged."
            ),
            instead=(
                "Fill missing values with a declared category before `fit`, in every column in "
                "which they could occur."
            ),
        ),
        _dpmm("aim", calls.dpmm_aim),
        _interpret(
            "dp-ebm",
            calls.interpret_dp_ebm,
            score=bound_of_age,
            canary=CanaryKind.EXTREME,
            planted={"age": int(EXTREME)},
            event="the model's bound of age is more than ten times that of any other row",
            trials=15,
            cause=(
                "Without `privacy_bounds` the exact minimum and maximum of each column become "
                "`feature_bounds_` of the model (`interpret/utils/_preprocessor.py:340`)."
            ),
            documented=(
                "Documented and warned about: `Possible privacy violation: assuming min/max values "
                "per feature are public info` (`_preprocessor.py:486`)."
            ),
            instead="Pass `privacy_bounds` and `feature_types`.",
        ),
        _interpret(
            "dp-ebm-bounds",
            calls.interpret_dp_ebm_with_bounds,
            score=category_in_bins,
            canary=CanaryKind.CATEGORY,
            planted={"diagnosis": ONLY},
            event="the category that only the canary has is a bin of the model",
            trials=40,
            source="API reference, with what the warnings of the shorter call ask for",
            cause=(
                "`private_categorical_binning` (`interpret/utils/_privacy.py:142`) adds Gaussian "
                "noise to the counts of the categories *that occur* and keeps those of at least "
                "n / max_bins rows. Here that is about 9 rows at a noise of similar size: a "
                "category of one person is kept in a large share of fits, and one that does not "
                "occur never is. The guarantee needs a threshold that follows from delta."
            ),
            documented="Not mentioned; with bounds and types given there is no warning.",
            instead=(
                "Pass categories as bounded integer codes of a public list, declared `continuous` "
                "with `privacy_bounds` (our `private-teacher-dc` does)."
            ),
        ),
        _smartnoise("mwem", calls.smartnoise_mwem, 15),
        _smartnoise("patectgan", calls.smartnoise_patectgan, 15),
        _smartnoise("mst", calls.smartnoise_mst, 15),
        _smartnoise("pategan", calls.smartnoise_pategan, 15, rows=1200),
        _smartnoise("dpctgan", calls.smartnoise_dpctgan, 15, rows=1200),
        _smartnoise("aim", calls.smartnoise_aim, 15),
        LibraryTarget(
            name="opendp-mst",
            library="opendp",
            version="0.16.0",
            package="opendp",
            environment=OPENDP,
            call=calls.opendp_mst,
            score=category_in_rows,
            canary=CanaryKind.CATEGORY,
            planted={"diagnosis": ONLY},
            event=IN_SYNTHETIC,
            rows=_ROWS,
            columns=CATEGORICAL,
            epsilon=1.0,
            delta=1e-6,
            trials=15,
            source="`dp.mbi.MST` in the API reference",
            differs=(
                "rho = 0.015 and delta = 1e-7, about epsilon 1 at delta 1e-6; one row per person; "
                "the categories of `diagnosis` are not declared, as those of `ILOSTAT` there."
            ),
            cause="",
            documented=(
                "Undeclared keys are found by a histogram with a threshold that follows from delta."
            ),
            instead="Nothing: this is how undeclared categories can be found.",
        ),
    )


NOT_INSTALLED = {
    "synthcity 0.2.12": (
        "requires torch below 2.3, while every environment here shares torch 2.13 "
        "(pip: conflicting dependencies); its PATE-GAN, DP-GAN and PrivBayes were not audited"
    ),
    "dpmm 0.1.9, MST": (
        "installs, but a fit takes 10 to 40 s of processor time on three columns; it shares the "
        "table binner with the audited model"
    ),
}
"""What was asked for and not audited, and why."""


def target_named(name: str) -> LibraryTarget:
    """Return the target of this name."""
    known = {target.name: target for target in targets()}
    if name not in known:
        raise UnknownNameError("library target", name, sorted(known))
    return known[name]
