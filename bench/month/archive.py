"""Puts away what is over and done with: the store in memory looks through all that it has.

The service forgets old records, too, only later (lists after an hour, instances after a week).
"""

from __future__ import annotations

from bench.month.users import DAY_S
from gpuherd.domain.instance.instance import TERMINAL_STATUSES
from proof.chaos.ends.evidence import EndsEvidence
from tests.support.memory.tables import SpanRow, Tables

LISTS_KEPT = 50
# After this nobody asks about an instance that has ended, nor about those that it took over from.
KEPT_S = DAY_S


class Archive:
    """The spans that were put away; they are part of the ledger."""

    def __init__(self, tables: Tables, ends: EndsEvidence):
        self._tables, self._ends = tables, ends
        self.spans: list[SpanRow] = []

    def tidy(self, now_s: float) -> None:
        tables = self._tables
        for number in sorted(tables.lists)[:-LISTS_KEPT]:
            tables.lists.pop(number)
        # A machine that lists may still show keeps its instance.
        shown = {tables.bound[cloud_id] for cloud_id in tables.observations if cloud_id in tables.bound}
        old = {
            key
            for key, row in tables.instances.items()
            if row.instance.status in TERMINAL_STATUSES
            and key not in shown
            and now_s - self._ends.versions[key][-1].at_s > KEPT_S
        }
        if not old:
            return
        for key in old:
            tables.instances.pop(key)
        for cloud_id in [cloud_id for cloud_id, key in tables.bound.items() if key in old]:
            tables.bound.pop(cloud_id)
        for of_call in [it for it in tables.attempts if it[0] in old]:
            tables.tags.pop(tables.attempts.pop(of_call).tag, None)
        for of_event in [it for it in tables.events if it[0] in old]:
            tables.events.pop(of_event)
        for job_id in [job_id for job_id, row in tables.jobs.items() if row.new.instance_id in old]:
            tables.jobs.pop(job_id)
        self._put_away_spans(old)

    def _put_away_spans(self, old: set[str]) -> None:
        spans = self._tables.spans
        ended = [n for n, row in spans.items() if row.subject.instance_id in old and row.span.ended]
        self.spans += [spans.pop(n) for n in ended]
