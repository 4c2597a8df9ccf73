"""What is too old is forgotten, each kind after its own time."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.usecases.prune_records import PruneRecords
from tests.support.fake_clock import START, FakeClock


class NotedRetention:
    """The port `Retention`, which only notes how old is too old."""

    def __init__(self) -> None:
        self.asked: dict[str, timedelta] = {}

    async def prune_claims(self, before: datetime) -> int:
        return self._note("claims", before, 1)

    async def prune_instances(self, before: datetime) -> int:
        return self._note("instances", before, 2)

    async def prune_account_events(self, before: datetime) -> int:
        return self._note("account events", before, 4)

    async def prune_sessions(self, before: datetime) -> int:
        return self._note("sessions", before, 8)

    def _note(self, what: str, before: datetime, count: int) -> int:
        self.asked[what] = START - before
        return count


async def test_each_kind_is_kept_for_its_own_time() -> None:
    retention = NotedRetention()
    assert await PruneRecords(retention, FakeClock())() == 15
    day, week, month = timedelta(days=1), timedelta(days=7), timedelta(days=30)
    assert retention.asked == {"claims": week, "instances": week, "account events": month, "sessions": day}
