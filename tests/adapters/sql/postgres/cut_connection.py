"""A line to PostgreSQL that can be cut at the one moment when it matters: around a COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

import sqlalchemy as sa

from tests.adapters.sql.engine.blocked_writer import PATIENCE_S

COMMIT = b"COMMIT\0"


class Cut(Enum):
    """When the line is cut: the server has not heard of the commit, has done it, or will hear it later."""

    BEFORE = auto()
    AFTER = auto()
    HELD = auto()


class CutConnection:
    """Passes everything on, until a commit for which a cut was planned."""

    def __init__(self, libpq_url: str):
        server = sa.make_url(libpq_url)
        self._server = str(Path(str(server.query["host"])) / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/{server.database}?sslmode=disable"
        self.is_up = True
        self.cuts: list[Cut] = []
        self.cut = threading.Event()
        self._held: socket.socket | None = None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self, *, commit: bool) -> None:
        """Let the server hear the commit that was held, or that nobody is there any more."""
        assert self._held is not None
        if commit:
            self._held.sendall(b"Q" + (4 + len(COMMIT)).to_bytes(4, "big") + COMMIT)
        _hang_up(self._held, socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()
        for end in self._open:
            _hang_up(end)

    def _accept(self) -> None:
        # Until the listener is closed.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self.is_up:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open += [client, server]
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := client.recv(65536):
                if COMMIT in said and self.cuts:
                    self._cut(client, server, said)
                    return
                server.sendall(said)
        _hang_up(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := server.recv(65536):
                client.sendall(said)
        _hang_up(client)

    def _cut(self, client: socket.socket, server: socket.socket, said: bytes) -> None:
        how = self.cuts.pop(0)
        # From here on the client hears nothing, whatever the server says.
        _hang_up(client, socket.SHUT_WR)
        if how is Cut.AFTER:
            server.sendall(said)
            # It answers and then hears that nobody is there; by then the commit is done.
            server.shutdown(socket.SHUT_WR)
        elif how is Cut.HELD:
            self._held = server
        else:
            _hang_up(server)
        self.cut.set()


def _hang_up(end: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(how)


@contextmanager
def cut_connection(libpq_url: str) -> Iterator[CutConnection]:
    """Give a line to the server of this URL."""
    line = CutConnection(libpq_url)
    try:
        yield line
    finally:
        line.close()


async def until_cut(line: CutConnection) -> None:
    """Wait for the cut."""
    assert await asyncio.to_thread(line.cut.wait, PATIENCE_S)
