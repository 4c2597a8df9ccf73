"""What the live check saw of a machine, and what that says about the cloud."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import (
    moment,
    part,
    parts,
    text,
    usd,
)
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.errors import MachineGone, OutcomeUnknown
from gpuherd.domain.instance.launch_spec import TAG_VARIABLE
from gpuherd.domain.instance.rent_attempt import parse_tag
from gpuherd.ops import live_assumptions
from gpuherd.ops.doctor_results import Agreement, LiveFinding
from gpuherd.ops.live_assumptions import Assumption
from gpuherd.ops.live_checks import judge_metrics, unread
from gpuherd.ops.live_rentals import INSTANCE_NAME


@dataclass(frozen=True)
class Sighting:
    """A status as a GET showed it, and the time of the request."""

    at: datetime
    status: str


@dataclass
class MachineStory:
    """All observations. None means not observed, for the reason in `broke_off`."""

    sent_at: datetime
    cloud_id: str | None = None
    # From the offer, per GPU and hour.
    gpu_usd: Decimal | None = None
    sightings: list[Sighting] = field(default_factory=list)
    # Seconds after the create.
    listed_after_s: float | None = None
    unlisted_after_s: float = 0.0
    # The machine in its first run: from the GET, and the same from the list.
    row: dict[str, Any] | None = None
    listed_row: dict[str, Any] | None = None
    row_stopped: dict[str, Any] | None = None
    row_restarted: dict[str, Any] | None = None
    asked: dict[str, datetime] = field(default_factory=dict)
    refused_create: NovitaReply | None = None
    refused_start: NovitaReply | None = None
    metrics: NovitaReply | None = None
    gone: NovitaReply | None = None
    deleted_again: NovitaReply | None = None
    # Why the server rents nothing more, if so.
    creates_blocked: str | None = None
    broke_off: str = ""

    def first(self, status: str, since: datetime | None = None) -> datetime | None:
        """Return when a status was first seen, or first seen since a moment."""
        return next(
            (it.at for it in self.sightings if it.status == status and (since is None or it.at >= since)),
            None,
        )

    @property
    def runs(self) -> list[Mapping[str, str]]:
        """When each run began to cost, was running, was asked to end, and had ended."""
        stop, start, delete = (self.asked.get(it) for it in ("stop", "start", "delete"))
        first = {
            "paid": self.first("pulling"),
            "running": self.first("running"),
            "ended": stop or delete,
            "exited": stop and self.first("exited", stop),
        }
        second = {"paid": start, "running": start and self.first("running", start), "ended": delete}
        runs = [first, second] if start else [first]
        return [{name: at.isoformat() for name, at in run.items() if at is not None} for run in runs]

    @property
    def machine(self) -> Mapping[str, Any] | None:
        """The facts that a later check of the bill needs, as JSON."""
        if self.cloud_id is None:
            return None
        price = None if self.gpu_usd is None else str(self.gpu_usd)
        return {
            "cloudInstanceId": self.cloud_id,
            "sentAt": self.sent_at.isoformat(),
            "gpuHourlyUsd": price,
            "runs": self.runs,
        }


# Factors of the settling time: for a create with its reply, and for the list.
REPLY_S, LAG_FACTOR = 30, 4


SPOT_WORDS = frozenset({"running", "notified", "reclaiming", "terminated"})


# Between a stamp of Novita and our observation.
STAMP_SLACK_S = 10.0


Judge = Callable[[MachineStory], LiveFinding]


def judge_story(story: MachineStory, create_settle_s: float) -> list[LiveFinding]:
    """Return all findings of the paid checks except the one about the bill."""
    why = story.broke_off or "it was not looked at"
    judges: tuple[tuple[Assumption, object, Judge], ...] = (
        (live_assumptions.TAG_NAME, story.row, judge_name),
        (live_assumptions.TAG_ENV, story.row, judge_environment),
        (live_assumptions.LIST_LAG, story.sightings, lambda it: judge_lag(it, create_settle_s)),
        (live_assumptions.LIST_ROW, story.row, judge_listed_row),
        (live_assumptions.STATUSES, story.sightings, judge_statuses),
        (live_assumptions.STAMPS, story.row, judge_stamps),
        (live_assumptions.PRICE, story.row, judge_price),
        (live_assumptions.SPOT, story.row, judge_spot),
        (live_assumptions.STATE_REFUSAL, story.refused_start, judge_state_refusal),
        (live_assumptions.CREATE_REFUSAL, story.refused_create, judge_create_refusal),
        (live_assumptions.PORTS, story.row_restarted, judge_ports),
        (live_assumptions.GONE, story.deleted_again, judge_gone),
        (live_assumptions.PAID_METRICS, story.metrics, _metrics),
    )
    return [judge(story) if seen else assumption.not_seen(why) for assumption, seen, judge in judges]


def judge_name(story: MachineStory) -> LiveFinding:
    names = {text(row, "name") for row in (story.row, story.listed_row) if row is not None}
    whole = all(name.startswith(INSTANCE_NAME) and parse_tag(name) is not None for name in names)
    if whole and len(names) == 1:
        return live_assumptions.TAG_NAME.holds(f"{len(names.pop())} characters kept, with the tag")
    lengths = " and ".join(str(len(name)) for name in sorted(names))
    blocked = f"; the server says: {story.creates_blocked}" if story.creates_blocked else ""
    return live_assumptions.TAG_NAME.differs(f"a name of {lengths} characters without the whole tag{blocked}")


def judge_environment(story: MachineStory) -> LiveFinding:
    shown = {
        where: any(env.get("key") == TAG_VARIABLE and text(env, "value") for env in parts(row or {}, "envs"))
        for where, row in (("GET", story.row), ("list", story.listed_row))
    }
    words = ", ".join(f"{where} {'has it' if has else 'does not have it'}" for where, has in shown.items())
    return live_assumptions.TAG_ENV.judged(all(shown.values()), words, **shown)


def judge_lag(story: MachineStory, create_settle_s: float) -> LiveFinding:
    if story.listed_after_s is None:
        return live_assumptions.LIST_LAG.differs(
            f"not listed {story.unlisted_after_s:.0f} s after the wish was sent",
            f"GPUHERD_CREATE_SETTLE={_settle_s(story.unlisted_after_s)}",
        )
    # The last list did not have it, so this is its maximum delay.
    lag_s = story.listed_after_s if story.unlisted_after_s else 0.0
    needed_s = _settle_s(lag_s)
    seen = f"listed {story.listed_after_s:.1f} s after the wish was sent" + (
        "" if story.unlisted_after_s else ", when it was looked for first"
    )
    if needed_s > create_settle_s:
        return live_assumptions.LIST_LAG.differs(seen, f"GPUHERD_CREATE_SETTLE={needed_s}", lagSeconds=lag_s)
    return live_assumptions.LIST_LAG.holds(seen, lagSeconds=lag_s)


def _settle_s(lag_s: float) -> int:
    return min(3600, math.ceil((REPLY_S + LAG_FACTOR * lag_s) / 10) * 10)


def judge_listed_row(story: MachineStory) -> LiveFinding:
    if story.listed_row is None:
        return live_assumptions.LIST_ROW.not_seen("it was never listed")
    got, listed = (novita_json.read_machine(row) for row in (story.row, story.listed_row))
    if got is None or listed is None:
        return live_assumptions.LIST_ROW.differs("a row without an id")
    missing = [
        name
        for name, ours, theirs in (
            ("endpoints", got.ports, listed.ports),
            ("how to log in", got.connection.ssh, listed.connection.ssh),
            ("product", got.product_id, listed.product_id),
            ("billing mode", got.billing_mode, listed.billing_mode),
            ("cluster", got.cluster_id, listed.cluster_id),
        )
        if ours != theirs
    ]
    seen = f"the list differs in {', '.join(missing)}" if missing else "the same in both"
    return live_assumptions.LIST_ROW.judged(not missing, seen, differs=missing)


def judge_statuses(story: MachineStory) -> LiveFinding:
    words = [it.status for it in story.sightings]
    unknown = sorted({word for word in words if novita_json.PHASES.get(word, Phase.UNKNOWN) is Phase.UNKNOWN})
    return live_assumptions.STATUSES.judged(not unknown, " → ".join(words), unknown=unknown, words=words)


def judge_stamps(story: MachineStory) -> LiveFinding:
    row, stopped = story.row or {}, story.row_stopped or {}
    pairs = [("lastStartedAt", moment(row, "lastStartedAt"), story.first("running"))]
    if story.row_stopped is not None:
        pairs.append(("lastStoppedAt", moment(stopped, "lastStoppedAt"), story.first("exited")))
    told = [f"{name} {_beside(stamp, seen)}" for name, stamp, seen in pairs]
    created = moment(row, "createdAt")
    told.append(f"createdAt {_beside(created, story.sent_at)}".replace("we saw it", "we asked"))
    holds = created is not None and all(
        stamp is not None and seen is not None and abs((stamp - seen).total_seconds()) <= STAMP_SLACK_S
        for _, stamp, seen in pairs
    )
    return live_assumptions.STAMPS.judged(holds, "; ".join(told))


def _beside(stamp: datetime | None, seen: datetime | None) -> str:
    if stamp is None or seen is None:
        return "is missing"
    apart_s = (stamp - seen).total_seconds()
    return f"{abs(apart_s):.0f} s {'after' if apart_s > 0 else 'before'} we saw it"


def judge_price(story: MachineStory) -> LiveFinding:
    told = usd(story.row or {}, "instancePrice")
    if told is None:
        return live_assumptions.PRICE.differs("a machine does not say its price")
    seen = f"instancePrice is {told} USD, the offer was {story.gpu_usd}"
    return live_assumptions.PRICE.judged(story.gpu_usd is not None and told == Decimal(story.gpu_usd), seen)


def judge_spot(story: MachineStory) -> LiveFinding:
    row = story.row or {}
    if text(row, "billingMode") != "spot":
        return live_assumptions.SPOT.differs(f"billingMode is {text(row, 'billingMode') or 'empty'}")
    status, time = text(row, "spotStatus"), text(row, "spotReclaimTime")
    seen = f"spotStatus {status or 'empty'}, spotReclaimTime {time or 'empty'}"
    return live_assumptions.SPOT.judged(status in SPOT_WORDS and time == "0", seen)


def judge_state_refusal(story: MachineStory) -> LiveFinding:
    reply = _reply(story.refused_start)
    error = novita_failures.failure_of_change(reply, ResourceKind.MACHINE)
    holds = error is not None and error.code == "INVALID_STATE_CHANGE"
    return live_assumptions.STATE_REFUSAL.judged(holds, unread(reply))


def judge_create_refusal(story: MachineStory) -> LiveFinding:
    reply = _reply(story.refused_create)
    if reply.status == 429:
        return live_assumptions.CREATE_REFUSAL.not_seen("it was answered with 429")
    error = novita_failures.failure_of_change(reply, ResourceKind.ACCOUNT)
    holds = error is not None and not isinstance(error, OutcomeUnknown)
    return live_assumptions.CREATE_REFUSAL.judged(holds, unread(reply))


def judge_ports(story: MachineStory) -> LiveFinding:
    before, after = (_ports(row or {}) for row in (story.row, story.row_restarted))
    if not before:
        return live_assumptions.PORTS.not_seen("the machine has no TCP port and no SSH")
    changed = sum(after.get(name) != where for name, where in before.items())
    return live_assumptions.PORTS.judged(changed == len(before), f"{changed} of {len(before)} changed")


def _ports(row: dict[str, Any]) -> dict[str, str]:
    mapped = {
        text(it, "port"): text(it, "endpoint") for it in parts(row, "portMappings") if it.get("type") == "tcp"
    }
    ssh = text(part(row, "connectComponentSSH"), "sshCommand")
    return mapped | ({"ssh": ssh} if ssh else {})


def judge_gone(story: MachineStory) -> LiveFinding:
    gone, again = _reply(story.gone), _reply(story.deleted_again)
    is_gone = isinstance(novita_failures.failure_of_read(gone, ResourceKind.MACHINE), MachineGone)
    error = novita_failures.failure_of_change(again, ResourceKind.MACHINE)
    holds = is_gone and (error is None or isinstance(error, MachineGone))
    return live_assumptions.GONE.judged(holds, f"GET: {unread(gone)}; deleted again: {unread(again)}")


def _metrics(story: MachineStory) -> LiveFinding:
    found = judge_metrics(story.metrics)
    paid = live_assumptions.PAID_METRICS
    if found.verdict is Agreement.NOT_SEEN:
        return paid.not_seen("nothing was measured yet")
    return paid.judged(found.verdict is Agreement.AS_ASSUMED, found.seen)


def _reply(reply: NovitaReply | None) -> NovitaReply:
    assert reply is not None
    return reply
