"""What a caller can wait for, and when there is nothing left to wait for."""

from __future__ import annotations

from enum import StrEnum

from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.operation import BRINGING_UP


class WaitFor(StrEnum):
    """The state of affairs that a long poll waits for; `ready` means usable."""

    READY = "ready"
    EXITED = "exited"
    DELETED = "deleted"


def wait_result(instance: Instance, what: WaitFor) -> bool | None:
    """Tell whether `what` is reached; False when it will not come without a new order, None while it may."""
    match what:
        case WaitFor.READY:
            return True if instance.usable else _unless(_stays_unusable(instance))
        case WaitFor.EXITED:
            return True if instance.status is Status.EXITED else _unless(_is_leaving(instance))
        case WaitFor.DELETED:
            if instance.status is Status.DELETED:
                return True
            return _unless(instance.status is Status.FAILED and instance.goal is not Goal.DELETED)


def _unless(hopeless: bool) -> bool | None:
    return False if hopeless else None


def _is_leaving(instance: Instance) -> bool:
    return instance.goal is Goal.DELETED or instance.status in (
        Status.FAILED,
        Status.DELETING,
        Status.DELETED,
    )


def _stays_unusable(instance: Instance) -> bool:
    down = instance.status is Status.EXITED and not _is_being_started(instance)
    return down or instance.goal is Goal.STOPPED or _is_leaving(instance)


def _is_being_started(instance: Instance) -> bool:
    current = instance.operation
    return current is not None and current.is_running and current.kind in BRINGING_UP
