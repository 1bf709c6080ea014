"""Fetches the archive of a package with the ordinary client of its registry.

pip fetches wheels, npm packs, apt-get downloads: none of them runs anything of the package on the
way. pip does run the set-up code of a source archive, to learn its metadata, even for a download;
source archives are therefore looked up in the listing of the index that pip is configured with,
and downloaded as files.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import final

from bench.data.downloads import ShowProgress, download, read_small
from bench.data.files import DataFile, Package
from bench.errors import DataError, ProgramMissingError, one_line

_SILENT_SECONDS = 180.0
"""A client that has written nothing for this time is given up."""
_LOOK_SECONDS = 0.1
_ROOM = 64 << 20
"""Bytes beyond copies of the archive that a client may write: listings and logs."""
_COPIES = 3
"""A client can hold an archive in its cache, unpacked for checks, and in the folder."""
_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|Temporary failure|"
    r"Name or service not known|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|"
    r"Network is unreachable|Could not resolve|Could not connect|Connection refused|"
    r"cannot be reached"
)
_UNKNOWN_TO_APT = re.compile(r"Unable to locate package|Version '.*' for '.*' was not found")
_SECRET = re.compile(r"(?<=://)[^/\s@]+@")
"""User and password of an address."""
_SOURCE_ARCHIVES = (".tar.gz", ".tgz", ".zip")


def fetch(package: Package, folder: Path, show: ShowProgress) -> Path:
    """Fetch the archive into the empty folder, and compare its size and checksum."""
    if package.registry == "npm":
        _npm(package, folder, show)
    elif package.registry == "debian":
        _apt(package, folder, show)
    elif package.archive.endswith(_SOURCE_ARCHIVES):
        _source_archive(package, folder, show)
    else:
        _pip(package, folder, show)
    archive = folder / package.archive
    if not archive.is_file() or archive.is_symlink():
        came = sorted(path.name for path in folder.iterdir() if path.is_file())
        raise DataError(
            f"{package.describe()}: the client wrote {', '.join(came) or 'no file'}, expected "
            f"{package.archive}: another version or platform"
        )
    _check(package, archive)
    return archive


def _check(package: Package, archive: Path) -> None:
    size = archive.stat().st_size
    if size < package.size:
        raise DataError(
            f"{package.describe()}: {package.archive} is truncated: {size} of {package.size} "
            "bytes; nothing was kept"
        )
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise DataError(
            f"{package.describe()}: {package.archive} is not the archive that was examined "
            f"(SHA-256 {digest[:12]}, expected {package.sha256[:12]}); nothing was kept"
        )


# Clients ------------------------------------------------------------------------------------------


def pip_command() -> list[str]:
    """Return how pip is started: that of this Python, or the one of the system."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    return [_program("pip", "pypi")]


def _program(name: str, registry: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ProgramMissingError(
            f"{name}, the client of the registry {registry}, is not on this machine; install it"
        )
    return found


def _pip(package: Package, folder: Path, show: ShowProgress) -> None:
    command = [*pip_command(), "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--no-cache-dir", "--retries", "1", "--timeout", "30", "--ignore-requires-python"]
    command += [*_platform(package.archive), "--dest", "."]
    _run([*command, f"{package.package}=={package.version}"], package, folder, show)


def _platform(archive: str) -> list[str]:
    """Return pip's options for a wheel of one platform, so that every machine gets that wheel."""
    python, abi, platforms = archive.removesuffix(".whl").split("-")[-3:]
    match = re.fullmatch(r"(cp|pp)(\d)(\d+)", python.split(".")[0])
    if platforms == "any" or match is None:
        return []
    options = ["--implementation", match[1], "--python-version", f"{match[2]}.{match[3]}"]
    options += [part for tag in abi.split(".") for part in ("--abi", tag)]
    return options + [part for tag in platforms.split(".") for part in ("--platform", tag)]


def _npm(package: Package, folder: Path, show: ShowProgress) -> None:
    command = [_program("npm", "npm"), "pack", "--ignore-scripts"]
    command += ["--fetch-retries", "1", "--fetch-timeout", "30000", "--loglevel", "error"]
    _run([*command, f"{package.package}@{package.version}"], package, folder, show)


def _apt(package: Package, folder: Path, show: ShowProgress) -> None:
    command = [_program("apt-get", "debian"), "download", "-q", "-o", "Acquire::Retries=1"]
    command += ["-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30"]
    _run([*command, f"{package.package}={package.version}"], package, folder, show)


def _run(command: Sequence[str], package: Package, folder: Path, show: ShowProgress) -> None:
    """Run a client in the folder; it is ended when it writes too much, or nothing for long."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".client-") as scratch:
        log = Path(scratch, "log")
        environment = os.environ | {
            "LC_ALL": "C",
            "TMPDIR": scratch,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_PROGRESS_BAR": "off",
            "npm_config_cache": str(Path(scratch, "npm")),
            "npm_config_update_notifier": "false",
        }
        with (
            log.open("wb") as out,
            subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                _watch(process, package, (folder, Path(scratch)), show)
            finally:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            text = log.read_text(encoding="utf-8", errors="replace")
            raise _failed(Path(command[0]).name, package, text)
    show(package.archive, package.size, package.size)


def _watch(
    process: subprocess.Popen[bytes],
    package: Package,
    folders: Sequence[Path],
    show: ShowProgress,
) -> None:
    most = _COPIES * package.size + _ROOM
    before, since = 0, time.monotonic()
    while True:
        try:
            process.wait(_LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            written = sum(map(_size, folders))
        show(package.archive, min(written, package.size), package.size)
        if written > most:
            raise DataError(
                f"{package.describe()}: more than the {package.size} bytes of {package.archive} "
                "came; nothing was kept"
            )
        if written != before:
            before, since = written, time.monotonic()
        elif time.monotonic() - since > _SILENT_SECONDS:
            raise DataError(
                f"{package.describe()}: nothing came for {_SILENT_SECONDS:g} seconds (offline?)"
            )


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the client renames what it writes
            total += path.lstat().st_size
    return total


def _failed(client: str, package: Package, text: str) -> DataError:
    """Return what a client said, in one line, without passwords of addresses."""
    text = _SECRET.sub("", text)
    if _OFFLINE.search(text):
        return DataError(f"{package.describe()}: the registry cannot be reached (offline?)")
    if package.registry == "debian" and _UNKNOWN_TO_APT.search(text):
        return DataError(
            f"{package.describe()}: apt-get does not know this version; run `apt-get update` "
            "first, on Debian or a system with its archive"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(npm )?(ERROR|error|ERR!|E:)", line)]
    said = (errors or lines or ["it said nothing"])[0].rstrip(".")
    name = "pip" if package.registry == "pypi" else client
    return DataError(f"{package.describe()}: {name} failed: {one_line(said, 200)}")


# Source archives of an index ----------------------------------------------------------------------


def _source_archive(package: Package, folder: Path, show: ShowProgress) -> None:
    """Find the archive in the configured indexes, and download it as a file."""
    command = pip_command()
    settings = _settings(command)
    for place in settings.get("find-links", "").split():
        path = Path(urllib.parse.unquote(place.removeprefix("file://"))) / package.archive
        if path.is_file():
            shutil.copyfile(path, folder / package.archive)
            return
    indexes = [] if settings.get("no-index") else [_index(command, settings)]
    indexes += settings.get("extra-index-url", "").split()
    project = re.sub(r"[-_.]+", "-", package.package).lower()
    problems = []
    for index in indexes:
        listing = f"{index.rstrip('/')}/{project}/"
        try:
            address = _listed(listing, package.archive)
        except DataError as problem:
            problems.append(str(problem))
            continue
        if address is None:
            continue
        if address.startswith("file://"):
            shutil.copyfile(
                urllib.request.url2pathname(urllib.parse.urlsplit(address).path),
                folder / package.archive,
            )
        else:
            # The checksum is that of the archive: `download` would compare unpacked content.
            download(DataFile(package.archive, url=address), folder, show)
        return
    if problems:
        raise _failed("pip", package, "ERROR: " + problems[0])
    raise DataError(f"{package.describe()}: no index that pip knows lists {package.archive}")


def _settings(command: Sequence[str]) -> dict[str, str]:
    """Return pip's own settings: those of the environment count before those of its files."""
    settings: dict[str, str] = {}
    listed = _ask([*command, "config", "list"]).splitlines()
    for scope in ("global.", "install.", "download.", ":env:."):
        for line in listed:
            name, _, value = line.partition("=")
            if name.startswith(scope):
                with contextlib.suppress(ValueError, SyntaxError):
                    settings[name.removeprefix(scope)] = str(ast.literal_eval(value))
    return settings


def _index(command: Sequence[str], settings: dict[str, str]) -> str:
    """Return the index: the configured one, or the one that pip's help names as its default."""
    if "index-url" in settings:
        return settings["index-url"]
    found = re.search(r"--index-url.*\(default (\S+?)\)", _ask([*command, "download", "--help"]))
    if found is None:
        raise DataError("pip names no index; set PIP_INDEX_URL")
    return found[1]


def _ask(command: Sequence[str]) -> str:
    # A wide terminal, so that pip does not break its lines.
    answer = subprocess.run(
        command,
        env=os.environ | {"COLUMNS": "1000", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return answer.stdout


def _listed(listing: str, archive: str) -> str | None:
    """Return the address of an archive in the listing of an index, JSON or HTML."""
    if listing.startswith("file://"):
        page = Path(urllib.request.url2pathname(urllib.parse.urlsplit(listing).path), "index.html")
        if not page.is_file():
            return None
        text, base = page.read_text(encoding="utf-8"), page.as_uri()
    else:
        accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
        found = read_small(listing, accept)
        if found is None:
            return None
        text, base = found.decode("utf-8", "replace"), listing
    for name, address in _links(text):
        if name == archive:
            return urllib.parse.urljoin(base, address.partition("#")[0])
    return None


def _links(text: str) -> list[tuple[str, str]]:
    if not text.lstrip().startswith("{"):
        parser = _Anchors()
        parser.feed(text)
        return parser.links
    try:
        files = json.loads(text)["files"]
        return [(str(file["filename"]), str(file["url"])) for file in files]
    except (ValueError, KeyError, TypeError):
        raise DataError("the index answered with a listing that cannot be read") from None


@final
class _Anchors(HTMLParser):
    """The links of a page: text and address."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self._address = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._address = dict(attrs).get("href") or ""

    def handle_data(self, data: str) -> None:
        if self._address and data.strip():
            self.links.append((data.strip(), self._address))
            self._address = ""
