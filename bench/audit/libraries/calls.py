"""The calls of the libraries, each as the library's documentation shows it.

A call takes a table and returns what a user would publish. Nothing here hides or repairs what a
library does: what differs from its documentation is said in `targets`. Libraries are imported
inside functions, because each has an environment of its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def dpmm_privbayes(df: Any) -> Any:
    from dpmm.pipelines import PrivBayesPipeline

    model = PrivBayesPipeline(epsilon=1.0, delta=1e-5, proc_epsilon=0.1, gen_kwargs={"n_iters": 20})
    model.fit(df)
    return model.generate(n_records=1000)


def dpmm_aim(df: Any) -> Any:
    from dpmm.pipelines import AIMPipeline

    model = AIMPipeline(epsilon=1.0, delta=1e-5, proc_epsilon=0.1, gen_kwargs={"n_iters": 20})
    model.fit(df)
    return model.generate(n_records=1000)


def dpmm_with_domain(df: Any) -> Any:
    from dpmm.pipelines import PrivBayesPipeline

    from bench.audit.libraries.tables import CATEGORIES

    domain = {name: {"categories": list(values)} for name, values in CATEGORIES.items()}
    model = PrivBayesPipeline(epsilon=1.0, delta=1e-5, proc_epsilon=0.1, gen_kwargs={"n_iters": 20})
    model.fit(df, domain)
    return model.generate(n_records=1000)


def smartnoise_mwem(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("mwem", epsilon=1.0)
    return synth.fit_sample(df)


def smartnoise_mst(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("mst", epsilon=1.0)
    synth.fit(df, preprocessor_eps=0.5)
    return synth.sample(1000)


def smartnoise_aim(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("aim", epsilon=1.0)
    synth.fit(df, preprocessor_eps=0.5)
    return synth.sample(1000)


def smartnoise_patectgan(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("patectgan", epsilon=1.0)
    synth.fit(df, categorical_columns=list(df.columns))
    return synth.sample(1000)


def smartnoise_pategan(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("pategan", epsilon=1.0)
    synth.fit(df, categorical_columns=list(df.columns))
    return synth.sample(1000)


def smartnoise_dpctgan(df: Any) -> Any:
    from snsynth import Synthesizer

    synth = Synthesizer.create("dpctgan", epsilon=1.0)
    synth.fit(df, preprocessor_eps=0.5)
    return synth.sample(1000)


def datasynthesizer(df: Any) -> Any:
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    with tempfile.TemporaryDirectory() as folder:
        file, description = Path(folder) / "table.csv", Path(folder) / "description.json"
        df.to_csv(file, index=False)
        describer = DataDescriber(category_threshold=20)
        describer.describe_dataset_in_correlated_attribute_mode(
            dataset_file=str(file),
            epsilon=1,
            k=2,
            attribute_to_is_categorical={"diagnosis": True},
            attribute_to_is_candidate_key={},
        )
        describer.save_dataset_description_to_file(str(description))
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(1000, str(description))
        return generator.synthetic_dataset


def datasynthesizer_with_domain(df: Any) -> Any:
    import json

    from DataSynthesizer.DataDescriber import DataDescriber

    from bench.audit.libraries.tables import BOUNDS, CATEGORIES

    with tempfile.TemporaryDirectory() as folder:
        file, domains = Path(folder) / "table.csv", Path(folder) / "domains.json"
        description = Path(folder) / "description.json"
        df.to_csv(file, index=False)
        domains.write_text(json.dumps(CATEGORIES), encoding="utf-8")
        describer = DataDescriber(category_threshold=20)
        describer.describe_dataset_in_correlated_attribute_mode(
            dataset_file=str(file),
            epsilon=1,
            k=2,
            attribute_to_is_categorical=dict.fromkeys(CATEGORIES, True),
            attribute_to_is_candidate_key=dict.fromkeys(df.columns, False),
            categorical_attribute_domain_file=str(domains),
            numerical_attribute_ranges={name: list(pair) for name, pair in BOUNDS.items()},
        )
        describer.save_dataset_description_to_file(str(description))
        return description.read_text(encoding="utf-8")


def mostlyai_analysis(df: Any) -> Any:
    import json
    import sys

    # The index has no torchvision for this build of torch; tables do not use it.
    sys.modules["torchvision"] = None  # type: ignore[assignment]
    from mostlyai.engine import analyze, split
    from mostlyai.engine.domain import DifferentialPrivacyConfig

    with tempfile.TemporaryDirectory() as folder:
        split(tgt_data=df, workspace_dir=folder, model_type="TABULAR")
        analyze(
            workspace_dir=folder,
            value_protection=True,
            differential_privacy=DifferentialPrivacyConfig(),
        )
        (stats,) = Path(folder).rglob("tgt-stats/stats.json")
        return json.loads(stats.read_text(encoding="utf-8"))


def diffprivlib_naive_bayes(df: Any) -> Any:
    from diffprivlib.models import GaussianNB

    clf = GaussianNB()
    clf.fit(df[["age", "bmi"]].to_numpy(), df["outcome"].to_numpy())
    return clf


def diffprivlib_naive_bayes_with_bounds(df: Any) -> Any:
    from diffprivlib.models import GaussianNB

    from bench.audit.libraries.tables import BOUNDS

    low, high = zip(*BOUNDS.values(), strict=True)
    clf = GaussianNB(bounds=(list(low), list(high)), epsilon=1.0)
    clf.fit(df[["age", "bmi"]].to_numpy(), df["diagnosis"].to_numpy())
    return clf


def diffprivlib_logistic_regression(df: Any) -> Any:
    from diffprivlib.models import LogisticRegression

    clf = LogisticRegression()
    clf.fit(df[["age", "bmi"]].to_numpy(), df["outcome"].to_numpy())
    return clf


def interpret_dp_ebm(df: Any) -> Any:
    from interpret.privacy import DPExplainableBoostingClassifier

    ebm = DPExplainableBoostingClassifier(epsilon=1.0, delta=1e-5)
    ebm.fit(df.drop(columns="outcome"), df["outcome"])
    return ebm


def interpret_dp_ebm_with_bounds(df: Any) -> Any:
    from interpret.privacy import DPExplainableBoostingClassifier

    from bench.audit.libraries.tables import BOUNDS

    ebm = DPExplainableBoostingClassifier(
        feature_types=["continuous", "continuous", "nominal", "nominal"],
        privacy_bounds=BOUNDS,
        epsilon=1.0,
        delta=1e-5,
    )
    ebm.fit(df.drop(columns="outcome"), df["outcome"])
    return ebm


def opendp_mst(df: Any) -> Any:
    import opendp.prelude as dp
    import polars as pl

    from bench.audit.libraries.tables import OUTCOMES, SMOKERS

    dp.enable_features("contrib")
    context = dp.Context.compositor(
        data=pl.LazyFrame(df.to_dict("list")),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=0.015, delta=1e-7),
    )
    table = (
        context.query(rho=0.015, delta=1e-7)
        .select("diagnosis", "smoker", "outcome")
        .contingency_table(
            keys={"smoker": list(SMOKERS), "outcome": list(OUTCOMES)}, algorithm=dp.mbi.MST()
        )
        .release()
    )
    return table.synthesize().to_pandas()
