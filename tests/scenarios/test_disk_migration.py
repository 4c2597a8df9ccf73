"""Killed in the middle of an upgrade with work under way: the next start finishes it, and loses nothing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from gpuherd.adapters.sql import schema_migration
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import HEAD
from proof.chaos.kills.killable_server import KillableServer
from proof.chaos.kills.points import MID_MIGRATION, Kill
from tests.support.processes.services import Novita

pytestmark = [pytest.mark.processes, pytest.mark.long]

INSTANCE = "inst_01m7f8natehk96qv3bvs6f1z01"
DELIVERY = "msg_1"
DOC: dict[str, Any] = {
    "wish": {
        "template_id": "101",
        "gpu_num": 1,
        "disk_gb": 60,
        "regions": ["CN-HK-01"],
        "billing_mode": "spot",
        "hourly_usd_max": None,
        "optimize": "region",
    },
    "deadline": 9_994_736_192_206_347,
    "estimated_ready_at": 1_794_735_232_206_347,
    "reason": "accepted",
    "labels": {},
    "on_failure": "delete",
    "ports": [],
    "connection": {"ssh": "", "jupyter": "", "web_terminal": ""},
    "tag_verified": False,
    "releasing": False,
    "sequence": 1,
    **dict.fromkeys(("webhook_url", "rental", "started_at", "stopped_at", "asked_at", "operation")),
    **dict.fromkeys(("health_check", "health", "last_error")),
}
NOW = 1_794_734_992_206_347
# As the first version of gpuherd wrote them.
ROWS: dict[str, dict[str, object]] = {
    "installation": {"key": "installation", "value": "a1b2c3d4"},
    "instance": {
        "id": INSTANCE,
        "name": "old",
        "status": "creating",
        "goal": "running",
        "settled": False,
        "product_name": "RTX 4090 24GB",
        "created_at": NOW,
        "version": 3,
        "doc": json.dumps(DOC),
    },
    "event": {"instance_id": INSTANCE, "sequence": 1, "type": "instance.created", "at": NOW, "doc": "{}"},
    "delivery": {
        "id": DELIVERY,
        "instance_id": INSTANCE,
        "sequence": 1,
        "type": "instance.created",
        "url": "http://127.0.0.1:9/",
        "body": b"{}",
        "state": "delivered",
        "tries": 1,
        "created_at": NOW,
        "last_error": "",
    },
}


def first_version(connection: sa.Connection) -> None:
    """Make the tables as the first version of gpuherd had them, and a request that it had accepted."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema_migration.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")
    for table, row in ROWS.items():
        connection.execute(sa.table(table, *map(sa.column, row)).insert().values(**row))


@pytest.mark.proves("F58")
@pytest.mark.parametrize("step", [1, 3])
async def test_killed_in_the_middle_of_an_upgrade(novita: Novita, tmp_path: Path, step: int) -> None:
    server = KillableServer(tmp_path, novita)
    path = server.data_dir / "gpuherd.db"
    with contextlib.closing(Database(f"sqlite:///{path}")) as database:
        database.migrate_with(first_version)
    assert await server.run_until_killed(Kill(MID_MIGRATION, step))
    with contextlib.closing(sqlite3.connect(path)) as left:
        assert left.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert left.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    await server.start()
    ended = await server.until_settled(INSTANCE)
    assert ended["status"] == "running", ended
    assert [it["id"] for it in await novita.machines()] == [ended["cloudInstanceId"]]
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
        assert database.execute("SELECT id FROM delivery WHERE state = 'delivered'").fetchall() == [
            (DELIVERY,)
        ]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    await server.process.end()
