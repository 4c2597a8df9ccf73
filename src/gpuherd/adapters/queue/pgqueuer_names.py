"""PGQueuer's names in our database and the note that wakes its loop.

They are spelled out because PGQueuer would otherwise read them from the environment, where a variable as
common as CHANNEL or FUNCTION could move its tables.
"""

from __future__ import annotations

from datetime import datetime

from pgqueuer.domain.models import TableChangedEvent
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import OPERATIONS, Channel

CHANNEL = Channel("ch_pgqueuer")

PGQUEUER_SETTINGS = DBSettings(
    prefix="",
    db_schema=None,
    channel=CHANNEL,
    function="fn_pgqueuer_changed",
    statistics_table="pgqueuer_statistics",
    queue_status_type="pgqueuer_status",
    queue_table="pgqueuer",
    queue_table_log="pgqueuer_log",
    trigger="tg_pgqueuer_changed",
    schedules_table="pgqueuer_schedules",
    # Its log is not our history (the job table is), so it need not survive a crash of the server.
    durability=Durability.balanced,
    widen_id=True,
)


def table_changed_payload(operation: OPERATIONS, now: datetime) -> str:
    """Return the note that makes a waiting queue manager look again."""
    return TableChangedEvent(
        channel=CHANNEL,
        sent_at=now,
        type="table_changed_event",
        operation=operation,
        table=PGQUEUER_SETTINGS.queue_table,
    ).model_dump_json()
