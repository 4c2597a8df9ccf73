"""What a job's run answers. A wait is not a failure: only `Retry` and exceptions count as tries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Done:
    """The job has reached its end."""

    # Whether that is written already, together with what the job has brought about.
    written: bool = False


@dataclass(frozen=True)
class Snooze:
    """Nothing failed, but the job must run again after a while (or when somebody wakes it)."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True)
class Retry:
    """The try failed and counts; the next one comes after `delay`, if one is left."""

    delay: timedelta
    error: str


@dataclass(frozen=True)
class GiveUp:
    """The job has failed for good, whatever tries are left."""

    error: str
    # Whether that is written already, together with what the job has brought about.
    written: bool = False


Outcome = Done | Snooze | Retry | GiveUp
