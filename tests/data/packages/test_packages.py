"""Files out of packages: fake archives and fake clients; nothing leaves this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.data.files import DataFile, Member, Package, obtain_from_table
from bench.data.packages import add_origin, archives, clients, fetch, origin_lines, take_members
from bench.errors import DataError, ProgramMissingError, SchemaError

CONTENT = b"39, State-gov, 77516\n" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()
FILES = {"rows.csv": DataFile("rows.csv", SHA)}
SETUP = b"raise SystemExit('code of a package was run')"


def quiet(file: str, done: int, total: int | None) -> None:
    """No display."""


def tar_bytes(path: str = "pkg/rows.csv", content: bytes = CONTENT, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, body in (("pkg/setup.py", SETUP), (path, content)):
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            if link and name == path:
                entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, link, 0
            tar.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def deb(tar: bytes, packing: str) -> bytes:
    packed = lzma.compress(tar) if packing == "xz" else gzip.compress(tar)
    parts = [("debian-binary", b"2.0\n"), (f"data.tar.{packing}", packed)]
    out = b"!<arch>\n"
    for name, body in parts:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n"
        out += head.encode() + body + b"\n" * (len(body) % 2)
    return out


def zip_bytes(path: str = "pkg/rows.csv", content: bytes = CONTENT, mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        entry = zipfile.ZipInfo(path)
        entry.external_attr = mode << 16
        packed.writestr(entry, content)
    return buffer.getvalue()


def package_of(
    name: str, body: bytes, registry: str = "npm", path: str = "pkg/rows.csv"
) -> Package:
    return Package(
        registry,
        "tables",
        "1.0",
        name,
        hashlib.sha256(body).hexdigest(),
        len(body),
        "MIT",
        (Member("rows.csv", path),),
    )


KINDS: dict[str, Callable[[], bytes]] = {
    "a.whl": zip_bytes,
    "a.zip": zip_bytes,
    "a.tgz": lambda: gzip.compress(tar_bytes()),
    "a.tar.gz": lambda: gzip.compress(tar_bytes()),
    "xz.deb": lambda: deb(tar_bytes("./pkg/rows.csv"), "xz"),
    "gz.deb": lambda: deb(tar_bytes("./pkg/rows.csv"), "gz"),
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_file_is_taken_out_of_every_kind_of_archive(tmp_path: Path, name: str) -> None:
    body = KINDS[name]()
    (tmp_path / name).write_bytes(body)
    out = tmp_path / "out"
    out.mkdir()
    assert take_members(package_of(name, body), tmp_path / name, FILES, out) == [out / "rows.csv"]
    assert (out / "rows.csv").read_bytes() == CONTENT
    assert [path.name for path in out.iterdir()] == ["rows.csv"]


def test_a_packed_member_is_unpacked(tmp_path: Path) -> None:
    body = zip_bytes("pkg/rows.csv.gz", gzip.compress(CONTENT))
    (tmp_path / "a.whl").write_bytes(body)
    package = package_of("a.whl", body, path="pkg/rows.csv.gz")
    take_members(package, tmp_path / "a.whl", FILES, tmp_path)
    assert (tmp_path / "rows.csv").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("link.tgz", gzip.compress(tar_bytes(link="/etc/passwd")), "is a link"),
        ("link.whl", zip_bytes(mode=stat.S_IFLNK | 0o777), "is a link"),
        ("other.tgz", gzip.compress(tar_bytes("pkg/other.csv")), "holds no pkg/rows.csv"),
        ("altered.tgz", gzip.compress(tar_bytes(content=b"x")), "checksum differs"),
        ("cut.tgz", gzip.compress(os.urandom(64) + tar_bytes())[:900], "truncated|damaged"),
        ("cut.deb", deb(tar_bytes(), "xz")[:200], "truncated|damaged|no data.tar"),
        ("cut.whl", zip_bytes()[:-30], "truncated or damaged"),
        ("bomb.tgz", gzip.compress(tar_bytes(content=bytes(40 << 20))), "unpacks to more than"),
    ],
)
def test_what_is_not_the_file_is_refused_and_nothing_kept(
    tmp_path: Path, name: str, body: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(body)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(DataError, match=said) as raised:
        take_members(package_of(name, body), tmp_path / name, FILES, out)
    assert "\n" not in str(raised.value)
    assert list(out.iterdir()) == []


def client(folder: Path, name: str, script: str) -> Path:
    """Write a program that takes the place of a client; the archive is in $ARCHIVE."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, sys, shutil, time\n{script}\n")
    path.chmod(0o755)
    return path


COPY = "shutil.copy(os.environ['ARCHIVE'], '.')"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, bytes], Path]:
    """Return a function that installs a fake client and its archive, and an empty folder."""

    def install(script: str, archive: str, body: bytes) -> Path:
        programs = tmp_path / "bin"
        for name in ("npm", "apt-get"):
            client(programs, name, script)
        pip = client(programs, "pip", script)
        monkeypatch.setattr(clients, "pip_command", lambda: [str(pip)])
        monkeypatch.setenv("PATH", str(programs))
        (tmp_path / archive).write_bytes(body)
        monkeypatch.setenv("ARCHIVE", str(tmp_path / archive))
        place = tmp_path / "data" / "empty"
        place.mkdir(parents=True)
        return place

    return install


@pytest.mark.parametrize(
    ("registry", "name", "said"),
    [
        ("npm", "a.tgz", ["pack", "--ignore-scripts", "tables@1.0"]),
        ("pypi", "tables-1.0-py3-none-any.whl", ["download", "--no-deps", "tables==1.0"]),
        ("debian", "xz.deb", ["download", "tables=1.0"]),
    ],
)
def test_each_client_fetches_and_installs_nothing(
    machine: Callable[[str, str, bytes], Path], registry: str, name: str, said: list[str]
) -> None:
    body = KINDS.get(name, zip_bytes)()
    place = machine(f"{COPY}; open('../asked', 'w').write(' '.join(sys.argv[1:]))", name, body)
    assert fetch(package_of(name, body, registry), place, quiet).read_bytes() == body
    asked = (place.parent / "asked").read_text().split()
    assert [word for word in said if word not in asked] == []
    assert "install" not in asked
    assert {path.name for path in place.parent.iterdir()} == {"empty", "asked"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sys.exit('npm error code ENOTFOUND')", r"cannot be reached \(offline\?\)"),
        ("sys.exit('npm error 404 no such thing')", "npm failed: npm error 404 no such thing"),
        ("sys.exit('npm error at https://me:secret@host/x')", "at https://host/x"),
        ("open('other.tgz', 'w')", "the client wrote other.tgz, expected a.tgz"),
        ("open('a.tgz', 'wb').write(b'short')", "truncated: 5 of"),
        ("open('a.tgz', 'wb').write(bytes(900000))", "not the archive that was examined"),
        ("open('a.tgz', 'wb').write(bytes(70 << 20)); time.sleep(60)", "more than the"),
        ("time.sleep(60)", "nothing came for 1 seconds"),
    ],
)
def test_what_a_client_does_wrong_is_one_line(
    machine: Callable[[str, str, bytes], Path],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    said: str,
) -> None:
    # A client that says something may take its time to start on a busy machine.
    silent = 1.0 if "nothing came" in said else 120.0
    monkeypatch.setattr(clients, "_SILENT_SECONDS", silent)
    body = KINDS["a.tgz"]()
    place = machine(script, "elsewhere.tgz", body)
    with pytest.raises(DataError, match=said) as raised:
        fetch(package_of("a.tgz", body), place, quiet)
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)


def test_a_missing_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissingError, match=r"npm, the client .* is not on this machine"):
        fetch(package_of("a.tgz", b"x"), tmp_path, quiet)
    with pytest.raises(ProgramMissingError, match="apt-get, the client"):
        fetch(package_of("a.deb", b"x", "debian"), tmp_path, quiet)


def test_apt_without_lists_says_what_to_run(machine: Callable[[str, str, bytes], Path]) -> None:
    place = machine("sys.exit('E: Unable to locate package tables')", "x.deb", b"x")
    with pytest.raises(DataError, match="apt-get update"):
        fetch(package_of("a.deb", b"x", "debian"), place, quiet)


def test_a_source_archive_is_found_in_an_index_and_its_code_is_not_run(
    machine: Callable[[str, str, bytes], Path], tmp_path: Path
) -> None:
    """pip itself would run setup.py, even for `pip download`: only its settings are asked."""
    body = gzip.compress(tar_bytes())
    listing = tmp_path / "index" / "tables"
    listing.mkdir(parents=True)
    (listing / "tables-1.0.tar.gz").write_bytes(body)
    (listing / "index.html").write_text(
        '<a href="tables-1.0.tar.gz#sha256=0">tables-1.0.tar.gz</a>'
    )
    index = (tmp_path / "index").as_uri()
    script = f"assert sys.argv[1] == 'config'; print(\"global.index-url='{index}'\")"
    place = machine(script, "unused", b"")
    package = package_of("tables-1.0.tar.gz", body, "pypi")
    assert fetch(package, place, quiet).read_bytes() == body
    with pytest.raises(DataError, match=r"no index that pip knows lists tables-2\.0"):
        fetch(replace(package, archive="tables-2.0.tar.gz"), place, quiet)


def test_a_wheel_of_one_platform_is_asked_for_by_its_tags() -> None:
    asked = clients._platform("a-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    assert " ".join(asked) == (
        "--implementation cp --python-version 3.11 --abi cp311 "
        "--platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64"
    )
    assert clients._platform("a-1.0-py2.py3-none-any.whl") == []


def test_where_a_file_came_from_is_written_beside_it(tmp_path: Path) -> None:
    package = package_of("a.tgz", b"x")
    record = json.loads(add_origin(tmp_path, package, FILES).read_text())
    assert record["rows.csv"]["archive_sha256"] == package.sha256
    assert record["rows.csv"]["sha256"] == SHA
    (line,) = origin_lines(tmp_path / "rows.csv")
    assert line.startswith("from npm package tables 1.0, obtained 2")
    assert origin_lines(tmp_path / "other.csv") == []


TABLE = {
    "registry": "pypi",
    "package": "tables",
    "version": "1.0",
    "archive": "tables-1.0.tar.gz",
    "sha256": "0" * 64,
    "size": 10,
    "licence": "MIT",
    "members": [{"file": "rows.csv", "path": "pkg/rows.csv"}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"package": "hazardous"}, "redistributes a SEER file, .* data-use agreement"),
        ({"package": "Survivors"}, "redistributes a MIMIC file"),
        ({"package": "--index-url=x"}, "package"),
        ({"version": "1.0 --pre"}, "version"),
        ({"archive": "../x.whl"}, "archive"),
        ({"archive": "x.rpm"}, "must end in"),
        ({"registry": "cran"}, "expected pypi, npm, debian"),
        ({"sha256": "abc"}, "sha256"),
        ({"size": 0}, "size"),
        ({"colour": 1}, "'colour' is unknown"),
        ({"members": []}, "members is empty"),
        ({"members": [{"file": "no.csv", "path": "a"}]}, "must be in `files`"),
        ({"members": [{"file": "rows.csv", "path": "../a"}]}, "path"),
        ({"members": [{"file": "rows.csv", "path": "/etc/a"}]}, "path"),
    ],
)
def test_a_table_that_a_client_could_misread_is_refused(
    change: dict[str, object], said: str
) -> None:
    table = {"publisher": "p", "page": "q", "how": "h", "folder": "f"}
    files = [{"name": "rows.csv", "sha256": SHA}]
    good = obtain_from_table({**table, "files": files, "packages": [TABLE]})
    assert good.packaged("rows.csv")
    with pytest.raises(SchemaError, match=said):
        obtain_from_table({**table, "files": files, "packages": [{**TABLE, **change}]})


def test_a_file_larger_than_its_archive_can_hold_is_a_constant_of_the_reader() -> None:
    assert archives.plausible_size(1) == 16 << 20
