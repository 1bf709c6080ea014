"""A benchmark of differentially private synthetic data and dataset condensation.

This page is the public API: all that a plugin, its tests or a notebook import, by the room it comes
from. Names are loaded when they are first used, so that `import bench` costs nothing.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

PUBLIC = {
    "bench.errors": "BenchError DataError InputError InvalidReleaseError NotApplicable "
    "NotComputable PrivacyContractError SchemaError",
    "bench.stats.inference": "CONFIDENCE holm",
    "bench.data.schema": "Categorical Column Numeric Role Rule Schema Task read_toml",
    "bench.data.encoder": "Block EncodedRows Encoder Floats Integers MISSING_CATEGORY "
    "coerce_columns stand_in",
    "bench.data.dataset": "Counts Dataset Declaration Split declaration_from_table",
    "bench.data.files": "Obtain data_folder find_file open_data read_bytes read_csv",
    "bench.data.truth": "Truth auroc_with_error",
    "bench.data.augmentation": "Augmentation augmentation",
    "bench.privacy.accounting": "Budget compose_events pld_epsilon rdp_epsilon calibrate_noise",
    "bench.privacy.events": "exponential gaussian laplace sampled_gaussian",
    "bench.privacy.third_party": "seeded_global_generators silenced_output",
    "bench.privacy.kernel": "PlannedEvents PrivateData",
    "bench.privacy.noise": "SeededNoise",
    "bench.privacy.selection": "CodedRows Dependence Distance",
    "bench.privacy.opening": "open_private",
    "bench.privacy.trusted.table": "TrustedMechanism",
    "bench.plugins.method": "Between Environment Method Resources Spec",
    "bench.plugins.dataframe": "DataFrameMethod FitRequest Sampler",
    "bench.plugins.metric": "Direction Evaluation Family Metric Output Refit RefitMetric Score "
    "Scores",
    "bench.plugins.release": "Clients Claim Detector Federation Release ReleasedModel Rows Traffic "
    "TrainedInRounds",
    "bench.plugins.source": "DatasetSource FileSource build_dataset",
    "bench.plugins.registry": "registry",
    "bench.results.records": "Variant",
    "bench.results.reading": "RunTables load_results",
    "bench.engine.grid": "Grid load_grid",
    "bench.cluster.driver": "run RunSummary",
}
"""Module of every public name; `bench/__init__.pyi` says the same to type checkers."""

HOMES = {name: module for module, names in PUBLIC.items() for name in names.split()}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module 'bench' has no attribute {name!r}")
    module = _import_module(HOMES[name])
    value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
