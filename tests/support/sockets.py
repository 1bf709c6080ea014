"""What the processes that a test has started listen on, read from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

_LISTENS = "0A"


@dataclass(frozen=True)
class Listener:
    """A socket that waits for connections, or takes packets from anybody."""

    process: str
    address: str
    port: int
    kind: str

    @property
    def loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                pids += family(child)
    return pids


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return ""


def listeners(pid: int) -> list[Listener]:
    """All that a process and its descendants listen on."""
    return [listener for member in family(pid) for listener in _listeners(member)]


def _listeners(pid: int) -> list[Listener]:
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            own.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if rest[5] in own and (state == _LISTENS or kind.startswith("udp")):
                    address, port = local.split(":")
                    found.append(Listener(command(pid), _address(address), int(port, 16), kind))
    return found


def _address(text: str) -> str:
    # The kernel writes words of four bytes in the order of the machine.
    raw = bytes.fromhex(text)
    return str(ipaddress.ip_address(b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))))
