"""A disk whose power can be cut: records changes below a folder, and replays them up to any point.

Recorded are the system calls of this process that change files: creating, writing, truncating,
syncing, renaming, linking and removing. What a disk holds after a power cut follows from POSIX
alone, which promises less than any file system keeps: the content of a file is there once the file
was synced, and a name in a folder once the folder was. Everything since then may be there or not,
in any order; a write may be there in part, or as zeros of its length. Renaming is atomic.

`Recorder.complete` compares a replay of everything with the folder itself: a write that went around
the recorder would fail there.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tree = Mapping[str, bytes | None]
"""Content by relative path; None for a folder."""

ROOT = 0


@dataclass(frozen=True)
class Op:
    """One change: to the content of `inode`, or to the names in the folder `inode`."""

    kind: str
    """create, link, rename, unlink (names); write, truncate (content); fsync, sync; mark."""
    inode: int = ROOT
    name: str = ""
    target: int = ROOT
    """The file or folder that the name stands for."""
    source: str = ""
    """The former name, of a rename."""
    offset: int = 0
    content: bytes = b""
    said: Any = None
    """Of a mark: what was reported to somebody."""


NAMES = ("create", "link", "rename", "unlink")
CONTENT = ("write", "truncate")


class _Raw(io.FileIO):
    """A file whose writes are recorded."""

    recorder: Recorder

    def write(self, content: Any) -> int:
        data = bytes(content)
        appending = os.O_APPEND & _flags(self.fileno())
        end = os.fstat(self.fileno()).st_size
        offset = end if appending else self.tell()
        written = super().write(data)
        self.recorder.wrote(self.fileno(), offset, data[:written])
        return written

    def truncate(self, size: int | None = None) -> int:
        size = super().truncate(size)
        self.recorder.truncated(self.fileno(), size)
        return size


def _flags(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


class Recorder:
    """Records what this process changes below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.ops: list[Op] = []
        self._numbers: dict[int, int] = {os.stat(self.root).st_ino: ROOT}
        self._next = ROOT + 1
        self.before: dict[int, dict[str, int] | bytes] = {}
        """What was there at the start, by inode: all of it counts as synced."""
        self._look(self.root)

    def _look(self, folder: Path) -> None:
        names = {}
        for path in sorted(folder.iterdir()):
            names[path.name] = self._number(os.lstat(path).st_ino)
            if path.is_dir():
                self._look(path)
            else:
                self.before[names[path.name]] = path.read_bytes()
        self.before[self._number(os.stat(folder).st_ino)] = names

    def _number(self, inode: int, new: bool = False) -> int:
        if new or inode not in self._numbers:
            self._numbers[inode] = self._next
            self._next += 1
        return self._numbers[inode]

    def mark(self, said: Any) -> None:
        """Note that somebody was told something: from here on it must be true."""
        self.ops.append(Op("mark", said=said))

    # What is recorded -----------------------------------------------------------------------------

    def _place(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Where a path is, with its folder resolved; None outside of the root."""
        text = os.fsdecode(path)
        base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
        whole = base / text
        place = whole.parent.resolve() / whole.name
        return place if place.is_relative_to(self.root) and place != self.root else None

    def _inside(self, descriptor: int) -> bool:
        try:
            place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            return False
        return place.is_relative_to(self.root)

    def _folder(self, place: Path) -> int:
        return self._number(os.stat(place.parent).st_ino)

    def wrote(self, descriptor: int, offset: int, content: bytes) -> None:
        if self._inside(descriptor):
            inode = self._number(os.fstat(descriptor).st_ino)
            self.ops.append(Op("write", inode, offset=offset, content=content))

    def truncated(self, descriptor: int, size: int) -> None:
        if self._inside(descriptor):
            self.ops.append(Op("truncate", self._number(os.fstat(descriptor).st_ino), offset=size))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what happens inside."""
        real = {name: getattr(os, name) for name in _WATCHED}
        fdopen = os.fdopen
        shims = {name: getattr(self, f"_{name}") for name in _WATCHED}

        def watched(name: str) -> Callable[..., Any]:
            shim = shims[name]
            return lambda *given, **more: shim(real[name], *given, **more)

        for name in _WATCHED:
            setattr(os, name, watched(name))
        # `shutil.rmtree` looks into these sets before it removes by descriptor.
        added = [(group, name) for group in _CAPABLE for name in _WATCHED if real[name] in group]
        for group, name in added:
            group.add(getattr(os, name))
        os.fdopen = self._opened  # type: ignore[assignment]
        try:
            yield
        finally:
            for group, name in added:
                group.discard(getattr(os, name))
            os.fdopen = fdopen
            for name in _WATCHED:
                setattr(os, name, real[name])

    def _opened(self, descriptor: int, mode: str = "r", buffering: int = -1, **more: Any) -> Any:
        raw = _Raw(descriptor, mode.replace("b", ""), **more)
        raw.recorder = self
        if buffering == 0:
            return raw
        if raw.readable() and raw.writable():
            return io.BufferedRandom(raw)
        return io.BufferedWriter(raw) if raw.writable() else io.BufferedReader(raw)

    def _open(self, real: Any, path: Any, flags: int, *given: Any, **more: Any) -> int:
        place = self._place(path, more.get("dir_fd"))
        there = place is not None and os.path.lexists(place)
        descriptor: int = real(path, flags, *given, **more)
        if place is not None and flags & os.O_CREAT and not there:
            number = self._number(os.fstat(descriptor).st_ino, new=True)
            self.ops.append(Op("create", self._folder(place), place.name, number, content=b"file"))
        elif place is not None and flags & os.O_TRUNC:
            self.truncated(descriptor, 0)
        return descriptor

    def _mkdir(self, real: Any, path: Any, *given: Any, **more: Any) -> None:
        real(path, *given, **more)
        if place := self._place(path, more.get("dir_fd")):
            number = self._number(os.stat(place).st_ino, new=True)
            self.ops.append(Op("create", self._folder(place), place.name, number))

    def _replace(self, real: Any, source: Any, target: Any, **more: Any) -> None:
        one, two = self._place(source), self._place(target)
        assert one is None or two is None or one.parent == two.parent, "renamed across folders"
        real(source, target, **more)
        if one is not None and two is not None:
            number = self._number(os.lstat(two).st_ino)
            self.ops.append(Op("rename", self._folder(two), two.name, number, one.name))

    _rename = _replace

    def _unlink(self, real: Any, path: Any, *given: Any, **more: Any) -> None:
        place = self._place(path, more.get("dir_fd"))
        real(path, *given, **more)
        if place is not None:
            self.ops.append(Op("unlink", self._folder(place), place.name))

    _remove = _rmdir = _unlink

    def _link(self, real: Any, source: Any, target: Any, **more: Any) -> None:
        real(source, target, **more)
        if place := self._place(target):
            number = self._number(os.lstat(place).st_ino)
            self.ops.append(Op("link", self._folder(place), place.name, number))

    def _fsync(self, real: Any, descriptor: Any) -> None:
        real(descriptor)
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if self._inside(number):
            self.ops.append(Op("fsync", self._number(os.fstat(number).st_ino)))

    def _sync(self, real: Any) -> None:
        real()
        self.ops.append(Op("sync"))

    def _ftruncate(self, real: Any, descriptor: int, size: int) -> None:
        real(descriptor, size)
        self.truncated(descriptor, size)

    def complete(self) -> bool:
        """Return True where a replay of everything equals the folder."""
        return Disk(self, len(self.ops)).tree() == tree_of(self.root)


_WATCHED = (
    *("open", "mkdir", "replace", "rename", "unlink", "remove", "rmdir", "link"),
    *("fsync", "sync", "ftruncate"),
)
_CAPABLE = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)


def tree_of(root: Path) -> Tree:
    """Return all that is below a folder."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }


def write_tree(tree: Tree, root: Path) -> None:
    """Put a tree into an empty folder."""
    for name in sorted(tree):
        content = tree[name]
        if content is None:
            (root / name).mkdir(mode=0o700, parents=True)
        else:
            (root / name).write_bytes(content)


# Replaying ----------------------------------------------------------------------------------------

Chosen = Callable[[int, Op], Op | None]
"""What becomes of a change that was not synced, by its number: itself, less of it, or nothing."""


@dataclass
class _Node:
    """What is known of a file or folder at some point."""

    folder: bool
    content: bytearray = field(default_factory=bytearray)
    names: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[int, Op]] = field(default_factory=list)

    def apply(self, op: Op) -> None:
        if op.kind == "write":
            end = op.offset + len(op.content)
            self.content.extend(bytes(max(0, end - len(self.content))))
            self.content[op.offset : end] = op.content
        elif op.kind == "truncate":
            self.content.extend(bytes(max(0, op.offset - len(self.content))))
            del self.content[op.offset :]
        elif op.kind == "unlink":
            self.names.pop(op.name, None)
        else:
            self.names.pop(op.source, None)
            self.names[op.name] = op.target

    def settle(self) -> None:
        for _, op in self.pending:
            self.apply(op)
        self.pending.clear()


class Disk:
    """What may be on the disk when the power is cut before the operation with this number."""

    def __init__(self, recorder: Recorder, cut: int) -> None:
        self.cut = cut
        self.nodes: dict[int, _Node] = {ROOT: _Node(True)}
        for number, known in recorder.before.items():
            if isinstance(known, bytes):
                self.nodes[number] = _Node(False, bytearray(known))
            else:
                self.nodes[number] = _Node(True, names=dict(known))
        self.said: list[Any] = []
        for place, op in enumerate(recorder.ops[:cut]):
            self._take(place, op)
        self.last = recorder.ops[cut - 1] if cut else None

    def _take(self, place: int, op: Op) -> None:
        if op.kind == "mark":
            self.said.append(op.said)
        elif op.kind == "sync":
            for node in self.nodes.values():
                node.settle()
        elif op.kind == "fsync":
            self.nodes[op.inode].settle()
        else:
            if op.kind == "create":
                self.nodes[op.target] = _Node(op.content != b"file")
            self.nodes[op.inode].pending.append((place, op))

    @property
    def pending(self) -> list[tuple[int, Op]]:
        """Changes that were not synced, in the order in which they were made."""
        return sorted(item for node in self.nodes.values() for item in node.pending)

    def tree(self, chosen: Chosen = lambda _, op: op) -> Tree:
        """Return what is there where these of the pending changes reached the disk."""
        found: dict[str, bytes | None] = {}
        waiting = [("", ROOT)]
        while waiting:
            name, number = waiting.pop()
            old = self.nodes[number]
            node = _Node(old.folder, bytearray(old.content), dict(old.names))
            for place, op in old.pending:
                if (kept := chosen(place, op)) is not None:
                    node.apply(kept)
            if name:
                found[name] = None if node.folder else bytes(node.content)
            waiting += [(f"{name}/{inner}".lstrip("/"), at) for inner, at in node.names.items()]
        return found

    def states(self, *, many: bool, tried: int = 8) -> Iterator[tuple[str, Tree]]:
        """Return what the disk may hold, each in words; `many` for every single reordering."""
        yield "all that was done", self.tree()
        pending = self.pending
        if not pending:
            return
        last = self.last
        if last is not None and last.kind == "write":
            sizes = {len(last.content) // 2, len(last.content) - 1} | ({1} if many else set())
            for size in sorted(sizes):
                yield f"{size} bytes of the last write", self.tree(_torn(self.cut - 1, size))
        yield "what was synced", self.tree(lambda _, op: None)
        yield "names without content", self.tree(_only(NAMES))
        yield "content without names", self.tree(_only(CONTENT))
        yield "zeros for content", self.tree(_damaged(lambda content: bytes(len(content))))
        yield "content with holes", self.tree(_damaged(_holes))
        if not many:
            return
        for place, op in pending:
            yield f"nothing but {op.kind} {place}", self.tree(_these({place}))
            others = {other for other, _ in pending} - {place}
            yield f"all but {op.kind} {place}", self.tree(_these(others))
        places = [place for place, _ in pending]
        draw = random.Random(self.cut)
        if 2 ** len(places) <= tried:
            subsets = itertools.chain.from_iterable(
                itertools.combinations(places, size) for size in range(len(places) + 1)
            )
            choices = [set(one) for one in subsets]
        else:
            choices = [{one for one in places if draw.random() < 0.5} for _ in range(tried)]
        for choice in choices:
            yield f"{sorted(choice)} of {places[0]} to {places[-1]}", self.tree(_these(choice))


def _only(kinds: tuple[str, ...]) -> Chosen:
    return lambda _, op: op if op.kind in kinds else None


def _these(places: set[int]) -> Chosen:
    return lambda place, op: op if place in places else None


def _torn(cut: int, size: int) -> Chosen:
    def chosen(place: int, op: Op) -> Op:
        return _with(op, op.content[:size]) if place == cut else op

    return chosen


def _damaged(change: Callable[[bytes], bytes]) -> Chosen:
    return lambda _, op: _with(op, change(op.content)) if op.kind == "write" else op


def _with(op: Op, content: bytes) -> Op:
    return Op(op.kind, op.inode, offset=op.offset, content=content)


def _holes(content: bytes) -> bytes:
    """The middle third as zeros: blocks are written in any order."""
    third = len(content) // 3
    return content[:third] + bytes(third) + content[2 * third :]


def digest(tree: Tree) -> bytes:
    """Return what distinguishes two trees."""
    whole = hashlib.sha256()
    for name in sorted(tree):
        content = tree[name]
        whole.update(f"{name}\0{'folder' if content is None else len(content)}\0".encode())
        whole.update(content or b"")
    return whole.digest()
