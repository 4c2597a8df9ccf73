"""What needs a person, each with a sentence and the place where something can be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.orphans.orphan import OrphanVerdict
from gpuherd.entrypoints.web.views.formatting import BAD, MOVING, hourly
from gpuherd.usecases.describe.orphan import hourly_usd
from gpuherd.usecases.overview import SystemStatus

QUEUE_LAG_MAX_S = 30.0
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


def alerts_of(instances: Sequence[Instance], system: SystemStatus, *, is_admin: bool) -> list[Alert]:
    """Return everything that needs attention, what costs money first."""
    return [
        *_money(system, is_admin),
        *_service(system, is_admin),
        *_instances(instances),
        *_unknown(system),
        *_leftovers(system),
    ]


def _money(system: SystemStatus, is_admin: bool) -> Iterator[Alert]:
    ours = [it for it in system.orphans or () if it.verdict is not OrphanVerdict.FOREIGN]
    foreign = [it for it in system.orphans or () if it.verdict is OrphanVerdict.FOREIGN]
    if ours:
        cost = hourly(hourly_usd(ours))
        yield Alert(
            BAD, f"{_count(len(ours), 'orphaned machine')}, {cost}", _ORPHANS_DETAIL, "/orphans", "Look"
        )
    if foreign:
        cost = hourly(hourly_usd(foreign))
        title = f"{_count(len(foreign), 'machine')} of somebody else on this account, {cost}"
        yield Alert(MOVING, title, "Nothing is done about it until you decide.", "/orphans", "Look")
    if system.creates_blocked:
        action = ("/creates/resume", "Allow creates again") if is_admin else ("", "")
        yield Alert(BAD, "New machines are not rented", system.creates_blocked, "", "", *action)
    if system.account_unconfirmed:
        action = ("/cloud/confirm-account", "It is the right account") if is_admin else ("", "")
        yield Alert(BAD, "The account is not confirmed", system.account_unconfirmed, "", "", *action)
    if system.vanishing_held:
        action = ("/cloud/confirm-loss", "They are really gone") if is_admin else ("", "")
        yield Alert(BAD, "Many machines are missing at once", system.vanishing_held, "", "", *action)
    if system.auto_stop_braked:
        yield Alert(BAD, "Nothing ends by idleness", system.auto_stop_braked, "/instances", "Look")
    if system.collector_braked:
        yield Alert(BAD, "Surplus machines are not removed", system.collector_braked, "/orphans", "Look")


def _service(system: SystemStatus, is_admin: bool) -> Iterator[Alert]:
    if system.breaker != "CLOSED":
        detail = (
            "Calls to Novita fail, so what is shown here may be out of date. It is tried again by itself."
        )
        yield Alert(BAD, "Novita cannot be reached", detail)
    if system.oldest_due_s > QUEUE_LAG_MAX_S and is_admin:
        detail = f"The oldest job that is due waits for {system.oldest_due_s:.0f} s."
        yield Alert(MOVING, "The workers do not keep up", detail, "/jobs?status=PENDING", "Look")


def _instances(instances: Sequence[Instance]) -> Iterator[Alert]:
    failed = [it for it in instances if it.status is Status.FAILED]
    for it in failed[:FAILED_SHOWN]:
        yield Alert(BAD, f"{it.name} failed", it.reason, f"/instances/{it.id}", "Why?")
    if len(failed) > FAILED_SHOWN:
        title = f"{len(failed) - FAILED_SHOWN} more failed"
        yield Alert(BAD, title, "", "/instances?status=failed", "Show them")
    for it in instances:
        if it.loss_expected_at is not None:
            detail = "The cloud has announced that it takes this spot machine back."
            yield Alert(MOVING, f"{it.name} will be reclaimed", detail, f"/instances/{it.id}", "Look")


def _unknown(system: SystemStatus) -> Iterator[Alert]:
    for it in system.unknown:
        detail = "A create call got no answer. gpuherd looks for the machine before it tries again."
        yield Alert(MOVING, f"{it.name}: outcome not known yet", detail, f"/instances/{it.id}", "Look")


def _leftovers(system: SystemStatus) -> Iterator[Alert]:
    if system.dead_deliveries:
        title = f"{_count(system.dead_deliveries, 'webhook')} given up"
        yield Alert(BAD, title, "The receiver did not accept them.", "/webhooks?state=dead", "Look")
    if system.failed_jobs:
        title = _count(system.failed_jobs, "failed job")
        yield Alert(BAD, title, "They are not tried again by themselves.", "/jobs?status=FAILED", "Look")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_ORPHANS_DETAIL = "No instance has them, and they cost money."
