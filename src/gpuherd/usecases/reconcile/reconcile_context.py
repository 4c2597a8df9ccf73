"""What a step leaves behind: the instance under its lease, and a pause if the next look must wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.domain.instance.instance import Waiting
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.instances.tell_timeline import EventDetails

RECHECK_SOON = timedelta(seconds=1)


@dataclass(frozen=True)
class RequeueAfter:
    """Nothing more to do for a while, and why if that is worth telling."""

    delay: timedelta
    reason: str = ""
    # What has to change first, where it is nothing that we do ourselves.
    waiting: Waiting | None = None
    # What goes on record when such a wait begins.
    record: EventDetails | None = None


StepResult = tuple[LeasedInstance, RequeueAfter | None]
