"""Downloads over https: resumed where they stopped, bounded in size and time, checked.

The package pooch does not fit here: it restarts an interrupted download from the beginning, and
its checksum is that of the packed file, whereas publishers repack the same content.
"""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from bench.data.files import DataFile, fingerprint
from bench.errors import DataError, shortened

ShowProgress = Callable[[str, int, int | None], None]
"""Called with the name of the file, the bytes done and the bytes in all."""

_BLOCK = 1 << 16
_ATTEMPTS = 3
_ANSWER_SECONDS = 30.0
"""A server that has not begun to answer after this time, or is silent for it, is given up."""
_WINDOW_SECONDS = 60.0
_LEAST_BYTES = 256 << 10
"""Fewer bytes in a window of time are no download: a server can send single bytes for ever."""
_MOST_BYTES = 2 << 30
"""The largest file that is downloaded; the largest of a shipped dataset has 170 MB."""
_LARGEST_LISTING = 64 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def download(file: DataFile, folder: Path, show: ShowProgress) -> Path:
    """Download one file and verify its content; an interrupted download is resumed."""
    _check_address(file.url, file.url)
    # A packed file keeps its packing: loaders look inside.
    published = file.url.rsplit("/", 1)[-1].split("?")[0]
    target = folder / (published if published.endswith((".gz", ".zip")) else file.name)
    if target.suffix == ".gz":
        target = folder / f"{file.name.removesuffix('.gz')}.gz"
    partial = folder / f".part-{target.name}"
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _fetch(file, partial, show)
            break
        except urllib.error.HTTPError as problem:
            raise DataError(
                f"{file.url}: the server answered {problem.code}; open the address in a browser, "
                f"and put {file.name} into {folder}"
            ) from None
        except _Broken as problem:
            if attempt < _ATTEMPTS and problem.resumable and partial.exists():
                continue  # the connection broke: resume
            raise DataError(
                f"{file.url}: {problem}; offline? Put {file.name} into {folder} by hand, or run "
                "the command again to resume"
            ) from None
    if file.sha256 and _content_hash(partial, file.name) != file.sha256:
        partial.unlink()
        raise DataError(
            f"{file.url}: what came is not the published file (checksum differs); nothing was kept"
        )
    partial.replace(target)
    return target


def read_small(address: str, accept: str) -> bytes | None:
    """Return a page of an index; None where the server has no such page."""
    _check_address(address, address)
    request = urllib.request.Request(address, headers={"Accept": accept})
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            content: bytes = answer.read(_LARGEST_LISTING + 1)
    except urllib.error.HTTPError as problem:
        if problem.code == 404:
            return None
        raise DataError(f"{address}: the server answered {problem.code}") from None
    except (OSError, http.client.HTTPException) as problem:
        raise DataError(f"{address}: cannot be reached ({problem})") from None
    if len(content) > _LARGEST_LISTING:
        raise DataError(f"{address}: longer than any listing of a package")
    return content


@final
class _Broken(Exception):
    """A server or a connection that does not do what it should; the text says what."""

    def __init__(self, problem: str, *, resumable: bool = True) -> None:
        super().__init__(problem)
        self.resumable = resumable


def _check_address(address: str, asked: str) -> None:
    """Refuse what is not https; http on this machine is for tests and mirrors, if asked for."""
    try:
        parts = urllib.parse.urlsplit(address)
        host, scheme = parts.hostname or "", parts.scheme
        own = urllib.parse.urlsplit(asked)
        asked_locally = own.scheme == "http" and own.hostname in _LOOPBACK
    except ValueError:
        raise DataError(f"{shortened(address)}: not an address") from None
    local = scheme == "http" and host in _LOOPBACK and asked_locally
    if not (local or (scheme == "https" and host)):
        redirected = "" if address == asked else f" (redirected from {shortened(asked)})"
        raise DataError(f"{shortened(address)}: only https addresses are downloaded{redirected}")


@final
class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only; urllib itself follows them to http and ftp."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _check_address(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@final
@dataclass(frozen=True)
class _Start:
    """What a server says before the content: from which byte it is, and where it ends."""

    start: int
    total: int | None


def _fetch(file: DataFile, partial: Path, show: ShowProgress) -> None:
    """Append what is missing to the partial file.

    The network is read in a thread of its own: a name server, a handshake or a header that never
    ends cannot be given up from inside. The thread holds a connection and no file.
    """
    done = partial.stat().st_size if partial.exists() else 0
    items: queue.Queue[_Start | bytes | BaseException | None] = queue.Queue(maxsize=64)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_read_server, args=(file.url, done, items, stopped), name="download", daemon=True
    )
    thread.start()
    try:
        begin = _next(items)
        if begin is None:
            return  # everything was there already
        if not isinstance(begin, _Start):
            raise _Broken("the server sent content before its header")
        _store(file, partial, begin, items, show)
    finally:
        stopped.set()


def _next(items: queue.Queue[_Start | bytes | BaseException | None]) -> _Start | bytes | None:
    try:
        item = items.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        raise _Broken(f"no answer for {_ANSWER_SECONDS:g} seconds") from None
    if isinstance(item, BaseException):
        raise item
    return item


def _store(
    file: DataFile,
    partial: Path,
    begin: _Start,
    items: queue.Queue[_Start | bytes | BaseException | None],
    show: ShowProgress,
) -> None:
    done, total = begin.start, begin.total
    if total is not None and total > _MOST_BYTES:
        raise _Broken(f"{total} bytes, more than the {_MOST_BYTES} allowed", resumable=False)
    since, before = time.monotonic(), done
    with partial.open("ab" if done else "wb") as out:
        while block := _next(items):
            if isinstance(block, _Start):
                raise _Broken("the server answered twice")
            done += len(block)
            if done > _MOST_BYTES:
                out.close()
                partial.unlink()
                raise _Broken(
                    f"more than the {_MOST_BYTES} bytes allowed, nothing was kept", resumable=False
                )
            out.write(block)
            show(file.name, done, total)
            if time.monotonic() - since > _WINDOW_SECONDS:
                if done - before < _LEAST_BYTES:
                    raise _Broken(
                        f"only {done - before} bytes in {_WINDOW_SECONDS:g} seconds",
                        resumable=False,
                    )
                since, before = time.monotonic(), done
    if total is not None and done < total:
        raise _Broken(f"the connection ended after {done} of {total} bytes")


def _read_server(
    address: str,
    done: int,
    items: queue.Queue[_Start | bytes | BaseException | None],
    stopped: threading.Event,
) -> None:
    """Put the start, the blocks and then None into the queue, or the exception that ended it."""

    def put(item: _Start | bytes | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return items.put(item, timeout=0.5)
            except queue.Full:
                continue

    try:
        for item in _answers(address, done):
            put(item)
            if stopped.is_set():
                return
        put(None)
    except (urllib.error.HTTPError, DataError, _Broken) as problem:
        put(problem)
    except (OSError, http.client.HTTPException, ValueError) as problem:
        # URLError has its reason in an attribute. Parts of what a server sent may be in the text.
        reason = str(getattr(problem, "reason", problem)) or type(problem).__name__
        shown = shortened(reason).strip("'\"") if not reason.isprintable() else reason[:200]
        put(_Broken(f"cannot be reached, or does not speak HTTP ({shown})"))


def _answers(address: str, done: int) -> Iterator[_Start | bytes]:
    request = urllib.request.Request(address)
    if done:
        request.add_header("Range", f"bytes={done}-")
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        answer = opener.open(request, timeout=_ANSWER_SECONDS)
    except urllib.error.HTTPError as problem:
        if not done or problem.code != 416:
            raise
        size = (problem.headers.get("Content-Range") or "").rpartition("/")[2]
        if size.isascii() and size.isdecimal() and int(size[:20]) != done:
            # What is there is not the beginning of the file.
            yield from _answers(address, 0)
        return
    with answer:
        start, length = 0, answer.headers.get("Content-Length")
        if answer.status == 206:
            stated = answer.headers.get("Content-Range") or f"bytes {done}-"
            if not stated.startswith(f"bytes {done}-"):
                raise _Broken("the server sent another part than was asked for", resumable=False)
            start = done
        known = length is not None and length.isascii() and length.isdecimal() and len(length) < 20
        if length is not None and not known:
            raise _Broken("the server states a length that is no number", resumable=False)
        yield _Start(start, start + int(length) if known and length is not None else None)
        while block := answer.read1(_BLOCK):
            yield block


def _content_hash(path: Path, name: str) -> str:
    try:
        return fingerprint(path, name)
    except DataError:
        return "damaged"
