"""What needs a person, each with a sentence and the place where something can be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuherd.domain.instance import Instance, Status
from gpuherd.domain.orphan import Orphan, OrphanVerdict
from gpuherd.entrypoints.web.views.words import BAD, MOVING, hourly
from gpuherd.usecases.describe_orphan import hourly_usd

LATE_S = 30.0
FAILED_SHOWN = 5


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at."""

    look: str
    title: str
    detail: str
    href: str = ""
    # What the link says.
    link: str = ""
    # Where a form goes that puts it right.
    action: str = ""
    button: str = ""


@dataclass(frozen=True)
class House:
    """How everything is that is not an instance; None where this key may not know."""

    breaker: str = "CLOSED"
    oldest_due_s: float = 0.0
    creates_blocked: str | None = None
    collector_braked: str | None = None
    dead_deliveries: int = 0
    failed_jobs: int = 0
    # Instances of which a create call got no answer.
    unknown: Sequence[Instance] = ()
    orphans: Sequence[Orphan] | None = None


def alerts_of(fleet: Sequence[Instance], house: House, *, is_admin: bool) -> list[Alert]:
    """Return everything that needs attention, what costs money first."""
    return [
        *_money(house, is_admin),
        *_service(house, is_admin),
        *_instances(fleet),
        *_unknown(house),
        *_leftovers(house),
    ]


def _money(house: House, is_admin: bool) -> Iterator[Alert]:
    ours = [it for it in house.orphans or () if it.verdict is not OrphanVerdict.FOREIGN]
    foreign = [it for it in house.orphans or () if it.verdict is OrphanVerdict.FOREIGN]
    if ours:
        cost = hourly(hourly_usd(ours))
        yield Alert(BAD, f"{_count(len(ours), 'orphaned machine')}, {cost}", _NOBODY, "/orphans", "Look")
    if foreign:
        cost = hourly(hourly_usd(foreign))
        title = f"{_count(len(foreign), 'machine')} of somebody else on this account, {cost}"
        yield Alert(MOVING, title, "Nothing is done about it until you decide.", "/orphans", "Look")
    if house.creates_blocked:
        action = ("/creates/resume", "Allow creates again") if is_admin else ("", "")
        yield Alert(BAD, "New machines are not rented", house.creates_blocked, "", "", *action)
    if house.collector_braked:
        yield Alert(BAD, "Surplus machines are not removed", house.collector_braked, "/orphans", "Look")


def _service(house: House, is_admin: bool) -> Iterator[Alert]:
    if house.breaker != "CLOSED":
        detail = (
            "Calls to Novita fail, so what is shown here may be out of date. It is tried again by itself."
        )
        yield Alert(BAD, "Novita cannot be reached", detail)
    if house.oldest_due_s > LATE_S and is_admin:
        detail = f"The oldest job that is due waits for {house.oldest_due_s:.0f} s."
        yield Alert(MOVING, "The workers do not keep up", detail, "/jobs?status=PENDING", "Look")


def _instances(fleet: Sequence[Instance]) -> Iterator[Alert]:
    failed = [it for it in fleet if it.status is Status.FAILED]
    for it in failed[:FAILED_SHOWN]:
        yield Alert(BAD, f"{it.name} failed", it.reason, f"/instances/{it.id}", "Why?")
    if len(failed) > FAILED_SHOWN:
        title = f"{len(failed) - FAILED_SHOWN} more failed"
        yield Alert(BAD, title, "", "/instances?status=failed", "Show them")
    for it in fleet:
        if it.reclaim_told and it.status not in (Status.EXITED, Status.DELETED, Status.FAILED):
            detail = "The cloud has announced that it takes this spot machine back."
            yield Alert(MOVING, f"{it.name} will be reclaimed", detail, f"/instances/{it.id}", "Look")


def _unknown(house: House) -> Iterator[Alert]:
    for it in house.unknown:
        detail = "A create call got no answer. gpuherd looks for the machine before it tries again."
        yield Alert(MOVING, f"{it.name}: outcome not known yet", detail, f"/instances/{it.id}", "Look")


def _leftovers(house: House) -> Iterator[Alert]:
    if house.dead_deliveries:
        title = f"{_count(house.dead_deliveries, 'webhook')} given up"
        yield Alert(BAD, title, "The receiver did not accept them.", "/webhooks?state=dead", "Look")
    if house.failed_jobs:
        title = _count(house.failed_jobs, "failed job")
        yield Alert(BAD, title, "They are not tried again by themselves.", "/jobs?status=FAILED", "Look")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_NOBODY = "No instance has them, and they cost money."
