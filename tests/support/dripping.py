"""An HTTP server that answers one byte at a time: no timeout of a request ever passes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"


@contextlib.contextmanager
def dripping(pause: float, seconds: float) -> Iterator[str]:
    """Serve on loopback; after so many seconds all connections are closed."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for byte in (*_ANSWER, *b" " * 1_000_000):
                connection.sendall(bytes([byte]))
                if stop.wait(pause):
                    return

    def accept() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            timer.cancel()
