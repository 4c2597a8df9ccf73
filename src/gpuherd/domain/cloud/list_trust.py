"""Whether the account was seen lately: since when no list could be believed, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.cloud.observation import ListRecord, Witness

UNBELIEVED_MAX = timedelta(minutes=5)
# A list that is made seldom may be that much older.
UNBELIEVED_INTERVALS = 3


def why_unbelieved(
    last: ListRecord | None, believed_at: datetime | None, since: datetime, now: datetime, poll: timedelta
) -> str | None:
    """Say why there was no believable list for too long, `since` the process began; None: there was one."""
    begun = since if believed_at is None else max(believed_at, since)
    if now - begun <= max(UNBELIEVED_MAX, poll * UNBELIEVED_INTERVALS):
        return None
    if last is None or last.finished_at < begun:
        return "no list was made"
    if not last.complete:
        return "the list is never complete: its pages do not fit the total that the cloud tells"
    if last.witness is Witness.MISSING:
        return "the list shows none of our machines, or not the account that they are on"
    return "no list was made"
