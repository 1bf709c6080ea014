"""Random input to every command that reads a user's files or values.

Whatever comes in: exit code 0, 1 or 2, at most one line about an error, no traceback (which is exit
code 3), no ten seconds of computing, no gigabyte of memory, and no file outside the folders that
were named. The small version is the same in every run; the large one (`make slow`) draws anew.
"""

from __future__ import annotations

import datetime
import gzip
import io
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.cli.main import main
from tests.support.memory import megabytes_taken

SECONDS = 10.0
MEGABYTES = 1000
SMALL, LARGE = 25, 1_500


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("BENCH_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    """Run a command, and check all that holds for any input."""
    with megabytes_taken() as taken:
        started = time.process_time()  # the machine may be busy with other things
        result = CliRunner().invoke(main, list(arguments))
        seconds = time.process_time() - started
        megabytes = taken()
    assert result.exit_code in (0, 1, 2), (arguments, result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), arguments
    if result.exit_code == 2:
        lines = result.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("bench: "), (arguments, result.stderr)
        assert len(lines[0]) < 5_000 and lines[0].isprintable(), arguments
    assert seconds < SECONDS, (arguments, seconds)
    assert megabytes < MEGABYTES, arguments
    return result


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# Values of the command line ---------------------------------------------------------------------

NASTY = (
    *("", " ", "-", "--", "²", "--5", "٣", "½", "nan", "-nan", "inf", "1e400", "5e-324", "-1"),
    *("0", "1", "9" * 5_000, str(2**63), str(-(2**63) - 1), "1,2", ",", "1,,²", "full", "FULL"),
    *("0x10", "1_0", "\udcff", "\x1b[2J", "\n", "a\nb", "../../x", "/etc/passwd", "/dev/zero"),
    *("~", ".", "..", "*", "%s", "{}", "None", "true", "a=1", "a=[", "a={", "a=2020-01-01"),
    *("a=[2020-01-01]", "=", "x" * 10_000, "marginals", "digits", "default", "all", "site:"),
    *("site:x", "smoke", "quick.toml", "\u202e", "\ufeff", "auto", "ray://", "a:1:2", "[::1]:1"),
    *("a..b:1", "sqlite:///x", "http://[", "😀", "real,real"),
)
VALUES = st.one_of(
    st.sampled_from(NASTY),
    # An argument holds no NUL; bytes that are no UTF-8 arrive as surrogates.
    st.text(st.characters(exclude_characters="\0"), max_size=12),
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=4).map(",".join),
    st.integers().map(str),
    st.floats().map(str),
)
NAMED = {  # commands that compute or write nothing, whatever the value
    ("run", "--dry-run", "--grid=smoke"): (
        *("--ipc", "--eps", "--seeds", "--methods", "--datasets", "--metrics"),
        *("--time-limit", "--memory-limit", "--disk-limit", "--cpus"),
    ),
    ("run", "--dry-run"): ("--grid", "--data-dir"),
    ("run", "--grid=smoke", "--methods=none"): ("--ray-address", "--out", "--mlflow-uri"),
    ("verify", "nowhere"): ("--sample", "--seed", "--cell", "--data-dir"),
    ("leaderboard", "nowhere", "-o", "site"): ("--alpha", "--cells", "--check"),
    ("audit", "marginals", "--dataset=none"): (
        *("--eps", "--trials", "--attack", "--ipc", "--delta", "--parameters", "--seed"),
        *("--methods", "--minutes", "--cpus", "--data-dir", "--dataset"),
    ),
    ("audit",): ("--table",),
    ("compare", "nowhere"): ("--metric", "--methods"),
    ("check", "none"): ("--parameters",),
    ("data", "add", "none.csv"): ("--name", "--target", "--time", "--site", "--separator"),
    ("ui", "nowhere"): ("--port",),
    ("dossier", "nowhere", "x"): ("-o",),
    ("new", "method"): ("--group",),
}  # fmt: skip
OPTIONS = [(command, option) for command, options in NAMED.items() for option in options]
PLAIN = (
    *(("status",), ("compare",), ("verify",), ("score",), ("sync",), ("ui",)),
    *(("leaderboard", "-o", "site"), ("merge", "-o", "merged"), ("dossier", "nowhere")),
    *(("list",), ("list", "methods"), ("list", "datasets"), ("list", "metrics")),
    *(("data",), ("data", "check"), ("data", "get"), ("data", "add", "--target=y")),
    *(("env", "list"), ()),
)  # fmt: skip


def try_option(drawn: tuple[tuple[tuple[str, ...], str], str]) -> None:
    (command, option), value = drawn
    if command == ("audit",) and not value:
        return  # --table= is the current folder
    result = call(*command, f"{option}={value}" if option.startswith("--") else option + value)
    if command[:2] == ("run", "--grid=smoke"):
        assert result.exit_code == 2
    assert not files_below(Path.cwd()) & {"site", "merged"}


def try_argument(drawn: tuple[tuple[str, ...], str]) -> None:
    command, value = drawn
    before = files_below(Path.cwd())
    call(*command, value)
    assert files_below(Path.cwd()) == before


def try_scaffold(drawn: tuple[str, str, str]) -> None:
    kind, name, group = drawn
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "a" / "b" / "root"
        for room in ("methods", "datasets", "metrics", "tests", "docs"):
            (root / room).mkdir(parents=True)
        options = [f"--group={group}"] if group else []
        call("new", kind, f"--root={root}", *options, "--", name)
        outside = {path for path in files_below(Path(folder)) if not path.startswith("a/b/root/")}
        assert outside == {"a", "a/b", "a/b/root"}


# Grids ------------------------------------------------------------------------------------------

KEYS = ("name", "datasets", "methods", "ipc", "epsilon", "delta", "seeds", "metrics", "split")
SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.dates(datetime.date(1, 1, 1)),
    st.datetimes(),
    st.times(),
    st.text(max_size=8),
    st.sampled_from(
        ["full", "digits", "marginals", "../../x", "default", "site:a", "", "all", "\x1b"]
    ),
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(
            st.sampled_from(["marginals", "digits", "dp-merf", "curial-sim"]), SCALARS
        ),
        "label": SCALARS,
        "parameters": st.dictionaries(
            st.sampled_from(["bins", "rows", "hidden", "x", ""]),
            st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4),
            max_size=2,
        ),
        "other": SCALARS,
    },
)
GRIDS = st.fixed_dictionaries(
    {
        "datasets": st.one_of(st.just(["breast-cancer"]), st.lists(st.one_of(SCALARS, ENTRIES))),
        "methods": st.one_of(st.just(["marginals"]), st.lists(st.one_of(SCALARS, ENTRIES))),
    },
    optional={
        key: st.one_of(st.lists(SCALARS, max_size=3), SCALARS)
        for key in (*KEYS, "split_seed", "strange")
        if key not in ("datasets", "methods")
    },
)


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            escaped = "".join(
                f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in value
            )
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())}}}"
        case datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


def try_grid(table: dict[str, Any]) -> None:
    try_grid_text("\n".join(f"{key} = {toml(value)}" for key, value in table.items()).encode())


GOOD_GRID = (
    b'name = "g"\ndatasets = ["breast-cancer", {name = "curial-sim", label = "c", parameters = '
    b'{rows = 50}}]\nmethods = ["real", "marginals"]\nipc = [50, "full"]\nepsilon = [0.5, 1]\n'
    b'delta = 1e-5\nseeds = [0, 1]\nmetrics = ["default"]\nsplit = "default"\n'
)


def try_grid_text(text: bytes) -> None:
    Path("g.toml").write_bytes(text)
    result = call("run", "--dry-run", "--grid=g.toml")
    assert files_below(Path.cwd()) <= {"g.toml", "t.csv", "own"}
    assert result.exit_code in (0, 2)


def altered(contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes with some of them replaced, removed, doubled or cut off."""

    @st.composite
    def strategy(draw: st.DrawFn) -> bytes:
        content = bytearray(draw(contents))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(content)))
            stop = min(len(content), start + draw(st.integers(0, 40)))
            how = draw(st.sampled_from(["put", "remove", "double", "cut"]))
            if how == "put":
                content[start:stop] = draw(st.binary(max_size=20))
            elif how == "remove":
                del content[start:stop]
            elif how == "double":
                content[start:start] = content[start:stop] * draw(st.integers(1, 50))
            else:
                del content[start:]
        return bytes(content)

    return strategy()


# Tables of a user -------------------------------------------------------------------------------

ODD_FIELDS = (
    *("", "0", "1", "a", "b", "1.0", "01", "NA", "nan", "inf", "-Infinity", "1e400", "5e-324"),
    *("1e300", "-1e300", "1e-200", "True", "FALSE", "(missing)", "(other)", '"', '"a,b"', '"a\nb"'),
    *("a b", " 1 ", "\x1b[2J", "😀", "\x7f", "9" * 400, str(2**64), "0x1F", "1_0", "٣"),
    *("2020-01-01", "x" * 300, "\0"),
)
FIELDS = st.one_of(
    st.sampled_from(ODD_FIELDS),
    st.integers(-100, 100).map(str),
    st.floats().map(str),
    st.text(max_size=6),
)
ODD_NAMES = ("y", "x", "", "Unnamed: 0", "p", "w.a", " y", "é", "__index_level_0__")
USUAL_NAMES = st.just(["y", "x", "z", "p", "w"])
HEADERS = st.one_of(
    USUAL_NAMES,
    USUAL_NAMES,
    USUAL_NAMES,
    st.lists(st.one_of(st.sampled_from(ODD_NAMES), st.text(max_size=5)), min_size=1, max_size=6),
)
SPECIAL = st.sampled_from(
    [
        *(["--target=y"], ["--target=y", "--patient=p"], ["--target=y", "--site=z"]),
        *(["--time=x", "--event=y"], ["--time=x", "--event=y", "--site=z", "--patient=p"]),
        *(["--target=y", "--separator=;"], ["--target=y", "--separator=\\t"]),
    ]
)


@st.composite
def csv_tables(draw: st.DrawFn) -> bytes:
    header = draw(HEADERS)
    few = st.sampled_from(draw(st.lists(FIELDS, min_size=1, max_size=4)))
    bits, counts = st.integers(0, 1).map(str), st.integers(0, 30).map(str)
    columns = [
        draw(st.sampled_from([bits, bits, bits, few] if name == "y" else [few, FIELDS, counts]))
        for name in header
    ]
    rows = [[draw(column) for column in columns] for _ in range(draw(st.integers(0, 12)))] * draw(
        st.integers(1, 5)
    )
    mark = draw(st.sampled_from([",", ",", ",", ";", "\t"]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    return end.join(mark.join(row) for row in [header, *rows]).encode("utf-8", "surrogatepass")


GOOD_CSV = (
    "y,x,z,p,w\n"
    + "".join(f"{n % 2},{n / 7},{'ab'[n % 3 % 2]},{n % 50},{n % 7}\n" for n in range(60))
).encode()
CSVS = st.one_of(
    *(csv_tables(), csv_tables(), csv_tables(), altered(csv_tables())),
    *(altered(st.just(GOOD_CSV)), st.binary(max_size=200)),
)


def try_csv(drawn: tuple[bytes, list[str], bytes, bytes]) -> None:
    """Add a table, load and split it; then the file changes, and it is loaded again."""
    content, options, rows, edit = drawn
    Path("t.csv").write_bytes(content)
    added(Path("t.csv"), options)
    if call("data", "add", "t.csv", "--name=t", *options).exit_code:
        return
    try:
        assert call("data", "check", "t").exit_code in (0, 1)
        head, mark, body = content.partition(b"\n")
        Path("t.csv").write_bytes(head + mark + body + rows)
        call("data", "check", "t")
        schema = Path("own/t.toml")
        schema.write_bytes(edit)
        call("data", "check", "t")
    finally:
        Path("own/t.toml").unlink()


def added(path: Path, options: list[str]) -> None:
    """Add, check and forget a table; what was accepted once must load."""
    if call("data", "add", str(path), "--name=t", *options).exit_code:
        assert not Path("own/t.toml").exists()
        return
    try:
        assert call("data", "check", "t").exit_code in (0, 1)
    finally:
        Path("own/t.toml").unlink()


def try_new_rows(drawn: tuple[list[list[str]], list[str]]) -> None:
    """Well-formed rows with any entries never make a table fail that was added before."""
    rows, options = drawn
    Path("t.csv").write_bytes(GOOD_CSV)
    assert call("data", "add", "t.csv", "--name=t", *options).exit_code == 0
    try:
        with Path("t.csv").open("a", encoding="utf-8", errors="surrogatepass", newline="") as file:
            for row in rows:
                quoted = [f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row]
                file.write(",".join(quoted) + "\n")
        assert call("data", "check", "t").exit_code in (0, 1)
    finally:
        Path("own/t.toml").unlink()


def packed(content: bytes, how: str) -> bytes:
    if how == "gz":
        return gzip.compress(content, 1)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", content)
    return out.getvalue()


def try_packed(drawn: tuple[str, bytes]) -> None:
    how, content = drawn
    path = Path("t.csv.gz" if how == "gz" else "t.zip")
    path.write_bytes(content)
    added(path, ["--target=y"])
    path.unlink()


TYPES = st.sampled_from(
    [
        *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
        *(pa.string(), pa.large_string(), pa.binary(), pa.binary(3), pa.date32(), pa.date64()),
        *(pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.time64("us"), pa.duration("ms")),
        *(pa.null(), pa.decimal128(10, 2), pa.decimal256(60, 3), pa.list_(pa.int64())),
        *(pa.map_(pa.string(), pa.int8()), pa.struct([("q", pa.int64())])),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64())),
        pa.list_(pa.struct([("a", pa.string())])),
    ]
)  # fmt: skip


@st.composite
def parquet_files(draw: st.DrawFn) -> bytes:
    names = draw(HEADERS)
    count = draw(st.integers(0, 30))
    arrays = []
    for name in names:
        plain = st.sampled_from([pa.int64(), pa.float64(), pa.string()])
        kind = draw(plain if name in ("y", "x") else st.one_of(plain, plain, TYPES))
        highest = draw(st.sampled_from([1, 1, 1, 100] if name == "y" else [1, 100]))
        arrays.append(_array(draw, kind, count, highest))
    cleaned = [name.encode("utf-8", "replace").decode() for name in names]
    out = io.BytesIO()
    options = draw(
        st.fixed_dictionaries(
            {
                "compression": st.sampled_from(["NONE", "SNAPPY", "ZSTD", "GZIP"]),
                "use_dictionary": st.booleans(),
                "row_group_size": st.sampled_from([5, 1_000]),
                "data_page_version": st.sampled_from(["1.0", "2.0"]),
                "store_schema": st.booleans(),
            }
        )
    )
    pq.write_table(pa.table(arrays, names=cleaned), out, **options)
    return out.getvalue()


def _array(draw: st.DrawFn, kind: pa.DataType, count: int, highest: int) -> pa.Array:
    """Some entries of any type: through an integer or a text where Arrow can convert these."""
    numbers = st.integers(0 if highest == 1 else -highest, highest)
    entries = draw(st.lists(st.one_of(numbers, numbers, st.none()), min_size=count, max_size=count))
    for raw in (entries, [None if entry is None else str(entry) for entry in entries]):
        try:
            return pa.array(raw).cast(kind)
        except (pa.ArrowException, ValueError):
            continue
    if pa.types.is_struct(kind):
        return pa.array([None if e is None else {"q": e} for e in entries], kind)
    return pa.array([None] * count, kind)


PARQUETS = st.one_of(parquet_files(), parquet_files(), altered(parquet_files()))


def try_parquet(drawn: tuple[bytes, list[str]]) -> None:
    content, options = drawn
    path = Path("t.parquet")
    path.write_bytes(content)
    added(path, options)


@st.composite
def edited_schemas(draw: st.DrawFn) -> bytes:
    Path("t.csv").write_bytes(GOOD_CSV)
    assert call("data", "add", "t.csv", "--name=t", "--target=y", "--site=z").exit_code == 0
    text = Path("own/t.toml").read_bytes()
    Path("own/t.toml").unlink()
    if draw(st.booleans()):
        return draw(altered(st.just(text)))
    lines = text.split(b"\n")
    keys = [place for place, line in enumerate(lines) if b" = " in line]
    for place in draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3)):
        value = draw(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4))
        lines[place] = lines[place].partition(b" = ")[0] + f" = {toml(value)}".encode()
    return b"\n".join(lines)


def try_schema(content: bytes) -> None:
    Path("own").mkdir(exist_ok=True)
    Path("t.csv").write_bytes(GOOD_CSV)
    Path("own/t.toml").write_bytes(content)
    try:
        call("data", "check", "t")
        assert call("data", "list").exit_code == 0
        call("run", "--dry-run", "--grid=smoke", "--datasets=t")
    finally:
        Path("own/t.toml").unlink()


# All kinds --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Kind:
    """One kind of input, and what is done with it."""

    inputs: st.SearchStrategy[Any]
    attempt: Callable[[Any], None]
    weight: float = 1.0
    """How many of them are tried, relative to the others."""


NAMES = st.one_of(VALUES, st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True))
KINDS = {
    "options": Kind(st.tuples(st.sampled_from(OPTIONS), VALUES), try_option, 2.0),
    "arguments": Kind(st.tuples(st.sampled_from(PLAIN), VALUES), try_argument),
    "scaffolds": Kind(
        st.tuples(st.sampled_from(["method", "dataset", "metric"]), NAMES, NAMES), try_scaffold
    ),
    "grids": Kind(GRIDS, try_grid, 2.0),
    "altered grids": Kind(altered(st.just(GOOD_GRID)), try_grid_text),
    "csv": Kind(
        st.tuples(CSVS, SPECIAL, st.binary(max_size=30), st.binary(max_size=50)), try_csv, 2.0
    ),
    "new rows": Kind(
        st.tuples(
            st.lists(st.lists(FIELDS, min_size=5, max_size=5), max_size=5),
            st.sampled_from([["--target=y"], ["--time=x", "--event=y", "--site=z", "--patient=p"]]),
        ),
        try_new_rows,
    ),
    "packed": Kind(
        st.sampled_from(["gz", "zip"]).flatmap(
            lambda how: st.tuples(st.just(how), altered(st.just(packed(GOOD_CSV, how))))
        ),
        try_packed,
    ),
    "parquet": Kind(st.tuples(PARQUETS, SPECIAL), try_parquet, 2.0),
    "schemas": Kind(edited_schemas(), try_schema),
}


def explore(kind: Kind, examples: int, derandomize: bool) -> int:
    """Try that many inputs; return how many there were."""
    tried = 0

    @settings(
        max_examples=max(1, round(examples * kind.weight)),
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn=kind.inputs)
    def one(drawn: Any) -> None:
        nonlocal tried
        tried += 1
        kind.attempt(drawn)

    one()
    return tried


@pytest.mark.parametrize("name", KINDS)
def test_a_few_inputs_of_every_kind(name: str) -> None:
    assert explore(KINDS[name], SMALL, derandomize=True) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_inputs_of_every_kind(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = int(os.environ.get("BENCH_FUZZ_EXAMPLES", LARGE))
    tried = explore(KINDS[name], examples, derandomize=False)
    with capsys.disabled():
        print(f"\n{name}: {tried} inputs tried")
