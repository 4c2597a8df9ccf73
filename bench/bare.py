"""The baselines: what the same machine does with as little between socket and disk as can be.

`python -m bench.bare PORT bytes FILE` answers every GET with the bytes of a file. `python -m bench.bare PORT
create FILE` writes an instance, an event and a job for every POST, with the same durability as ours.
`python -m bench.bare PORT collector FILE` takes traces, and forgets them.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import sys
import threading
import time
import uuid
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TABLES = """
PRAGMA journal_mode=WAL;
CREATE TABLE instance (id TEXT PRIMARY KEY, name TEXT, status TEXT, created_at INTEGER, doc TEXT);
CREATE TABLE event (id INTEGER PRIMARY KEY, instance_id TEXT, type TEXT, at INTEGER, doc TEXT);
CREATE TABLE job (id TEXT PRIMARY KEY, kind TEXT, status TEXT, execute_after INTEGER, payload TEXT);
"""
INSTANCE = "INSERT INTO instance VALUES (?, ?, ?, ?, ?)"
EVENT = "INSERT INTO event (instance_id, type, at, doc) VALUES (?, ?, ?, ?)"
JOB = "INSERT INTO job VALUES (?, ?, ?, ?, ?)"

Statements = list[tuple[str, tuple[object, ...]]]
Item = tuple[Statements, asyncio.Future[None]]


class Writer:
    """One thread, one connection, one commit for whatever is waiting."""

    def __init__(self, path: Path):
        self._path = path
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    async def write(self, statements: Statements) -> None:
        """Return when the statements are on the disk."""
        done = asyncio.get_running_loop().create_future()
        self._queue.put((statements, done))
        await done

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.executescript(TABLES)
        connection.execute("PRAGMA synchronous=FULL")
        while True:
            batch = [self._queue.get()]
            while len(batch) < 256 and not self._queue.empty():
                batch.append(self._queue.get())
            connection.execute("BEGIN IMMEDIATE")
            for statements, _ in batch:
                for statement, values in statements:
                    connection.execute(statement, values)
            connection.execute("COMMIT")
            batch[0][1].get_loop().call_soon_threadsafe(_tell, [done for _, done in batch])


def _tell(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        done.set_result(None)


def create_app(path: Path) -> Starlette:
    writer = Writer(path)

    async def create(request: Request) -> Response:
        wish = json.loads(await request.body())
        instance_id, now = f"inst_{uuid.uuid4().hex}", time.time_ns() // 1000
        doc = json.dumps(wish)
        await writer.write(
            [
                (INSTANCE, (instance_id, wish["name"], "creating", now, doc)),
                (EVENT, (instance_id, "instance.created", now, "{}")),
                (JOB, (f"job_{uuid.uuid4().hex}", "create_instance", "queued", now, doc)),
            ]
        )
        reply = {"id": instance_id, "status": "creating", **wish}
        return Response(json.dumps(reply), status_code=201, media_type="application/json")

    return Starlette(routes=[Route("/", create, methods=["POST"])])


def bytes_app(path: Path) -> Starlette:
    body = path.read_bytes()

    async def show(_: Request) -> Response:
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/", show)])


def collector_app(_: Path) -> Starlette:
    async def take(request: Request) -> Response:
        await request.body()
        return Response()

    return Starlette(routes=[Route("/v1/traces", take, methods=["POST"])])


APPS = {"create": create_app, "bytes": bytes_app, "collector": collector_app}


def main() -> None:
    port, kind, path = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    uvicorn.run(APPS[kind](path), port=port, log_level="critical", access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
