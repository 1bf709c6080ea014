"""What loaders share: tables inside installed packages, codes, and columns that are declared alike.

A file of a package is found without importing the package, and used only if its SHA-256 is the one
that its loader was written for. The tables of SurvSet are pickles, which can run code when they are
read: `survset_table` lets the package read one only after its version and the bytes of that file
were found to be those that were examined (their opcodes build numpy arrays and pandas tables and
nothing else).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from bench import DataError, Declaration, SchemaError, declaration_from_table, read_toml

SURVSET_VERSION = "0.2.11"


def package_bytes(package: str, extra: str, name: str, sha256: str) -> bytes:
    """Return the content of a file of an installed package, whose fingerprint must be the known."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the package {package} is not installed; it brings this dataset with the extra "
            f"{extra}: pip install 'dp-release-bench[{extra}]'"
        )
    path = Path(spec.submodule_search_locations[0]) / name
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be read ({problem.strerror}); the installed {package} is another "
            f"version: pip install 'dp-release-bench[{extra}]'"
        ) from None
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise DataError(
            f"{path}: fingerprint {actual[:12]} is not the known {sha256[:12]}: another version of "
            f"{package}, or altered; pip install 'dp-release-bench[{extra}]'"
        )
    return content


def arff_table(content: bytes) -> pd.DataFrame:
    """Read a table in Weka's ARFF format; nominal values become text."""
    from scipy.io import arff

    rows, _ = arff.loadarff(io.StringIO(content.decode("utf-8")))
    frame = pd.DataFrame(rows)
    for column in frame.select_dtypes(object):
        frame[column] = frame[column].str.decode("utf-8")
    return frame


def survset_table(name: str, sha256: str) -> pd.DataFrame:
    """Read a table of SurvSet, with the prefixes `num_` and `fac_` of its names removed.

    The package itself reads it, after the check that the module's docstring explains.
    """
    package_bytes("SurvSet", "survset", f"resources/pickles/{name}.pickle", sha256)
    version = importlib.metadata.version("SurvSet")
    if version != SURVSET_VERSION:
        raise DataError(
            f"SurvSet {version} is installed, but only {SURVSET_VERSION} was examined, and its "
            "tables are pickles: pip install 'dp-release-bench[survset]'"
        )
    loader = importlib.import_module("SurvSet.data").SurvLoader()
    frame: pd.DataFrame = loader.load_pickle(name)
    return frame.rename(columns=lambda column: column.removeprefix("num_").removeprefix("fac_"))


def recode(frame: pd.DataFrame, codes: Mapping[str, Mapping[str, str]], where: str) -> pd.DataFrame:
    """Replace codes by what they stand for; a code without meaning is refused."""
    frame = frame.copy()
    for column, meanings in codes.items():
        text = frame[column].map(str).astype(object)
        strange = sorted(set(text) - set(meanings))
        if strange:
            raise DataError(f"{where}: column {column!r} holds {strange[0]!r}, an unknown code")
        frame[column] = text.map(meanings)
    return frame


def declare_alike(path: Path, names: Iterable[str], template: str) -> Declaration:
    """Read the TOML file at `path`, adding one column like its table `template` for each name."""
    table = read_toml(path)
    if template not in table:
        raise SchemaError(f"{path}: lacks the key {template!r}")
    alike = dict.fromkeys(names, table[template])
    return declaration_from_table({**table, "columns": {**alike, **table["columns"]}}, str(path))
