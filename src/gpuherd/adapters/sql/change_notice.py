"""Tells the other replicas on a PostgreSQL database which instances a transaction has changed.

The notice is part of the transaction: it goes out with the commit, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sqlalchemy as sa

CHANNEL = "gpuherd_changes"
# PostgreSQL takes less than 8000 bytes.
NOTICE_MAX = 7000
_CHANGED = "gpuherd_changed"
_NOTIFY = sa.text("SELECT pg_notify(:channel, :notice)")


def note_change(connection: sa.Connection, instance_id: str) -> None:
    """Have the others told of this one, should the transaction be committed."""
    if connection.dialect.name == "postgresql":
        connection.info.setdefault(_CHANGED, []).append(instance_id)


def begin_notices(connection: sa.Connection) -> None:
    """Forget what an earlier transaction on this connection did not come to say."""
    connection.info.pop(_CHANGED, None)


def send_notices(connection: sa.Connection, sender: str) -> None:
    """Say all at once what was noted, just before the commit."""
    for notice in notices_of(sender, connection.info.pop(_CHANGED, ())):
        connection.execute(_NOTIFY, {"channel": CHANNEL, "notice": notice})


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
