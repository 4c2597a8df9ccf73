"""Tells the other replicas on a PostgreSQL database which instances a transaction has changed.

The notice goes out right after the commit, and not with it: PostgreSQL lets commits that notify through one
at a time, each until it is on the disk. It only makes things quick. Should this process die in between, the
others find out when what they remember has become too old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
import structlog

CHANNEL = "gpuherd_changes"
# PostgreSQL takes less than 8000 bytes.
NOTICE_MAX = 7000
_CHANGED = "gpuherd_changed"
# Nobody need wait for the disk because of this one.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"

log = structlog.get_logger()


def note_change(connection: sa.Connection, instance_id: str) -> None:
    """Have the others told of this one, should the transaction be committed."""
    if connection.dialect.name == "postgresql":
        connection.info.setdefault(_CHANGED, []).append(instance_id)


def begin_notices(connection: sa.Connection) -> None:
    """Forget what an earlier transaction on this connection did not come to say."""
    connection.info.pop(_CHANGED, None)


def noted_changes(connection: sa.Connection) -> list[str]:
    """Return what was noted on this connection."""
    changed: list[str] = connection.info.pop(_CHANGED, [])
    return changed


def send_notices(connection: sa.Connection, sender: str, changed: Iterable[str]) -> None:
    """Say all at once, after the commit: what was written stays written, whatever happens here."""
    driver: Any = connection.connection.dbapi_connection
    try:
        for notice in notices_of(sender, changed):
            driver.execute(_NOTIFY, [CHANNEL, notice])
    except connection.dialect.loaded_dbapi.Error as error:
        log.warning("changes.not_told", error=type(error).__name__)
        if driver.closed:
            connection.invalidate()


def notices_of(sender: str, instance_ids: Iterable[str]) -> Iterator[str]:
    """Return notices that PostgreSQL will take, each with as many ids as fit."""
    words, size = [sender], len(sender)
    for instance_id in dict.fromkeys(instance_ids):
        if size + 1 + len(instance_id) > NOTICE_MAX:
            yield " ".join(words)
            words, size = [sender], len(sender)
        words.append(instance_id)
        size += 1 + len(instance_id)
    if len(words) > 1:
        yield " ".join(words)


def read_notice(notice: str) -> tuple[str, list[str]]:
    """Return who has changed which instances."""
    sender, *instance_ids = notice.split(" ")
    return sender, instance_ids
