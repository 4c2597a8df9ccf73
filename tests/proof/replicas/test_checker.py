"""The checker finds what is wrong.

Of a run in which nothing is wrong, each single thing that could be is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from gpuherd.domain.instance.rent_attempt import Tag
from proof.chaos.kills.checker import WEBHOOK_SECRET, lineage_violations
from proof.chaos.kills.ledger_checker import MOMENTS
from proof.chaos.kills.plan import UserScript
from proof.replicas.checker import TERM_S, TERMS_MAX, check, terms
from proof.replicas.plan import Nemesis, Plan
from proof.replicas.runner import Evidence, Row
from proof.replicas.takeover import Takeover
from proof.replicas.users import UserOutcome
from tests.support.processes.services import Receiver

INSTALLATION = "0a1b2c3d"
KEY = "01m7ftebhcgqgdgsenmm0vvc2g"
INSTANCE_ID = f"inst_{KEY}"
TYPES = ("instance.created", "instance.running", "instance.ready")
SECOND = 1_000_000
RATE = 350_000_000
CHARGE = {"kind": "gpu", "from": 10.3, "to": 100.0, "hourlyUsd": "0.35"}
PLAN = Plan(7, Nemesis.KILL, 2, (UserScript.KEEP,), ())


def tag(attempt: int = 1) -> str:
    return str(Tag(INSTALLATION, KEY, attempt))


def name(attempt: int = 1) -> str:
    return f"{PLAN.name(0)}--{tag(attempt)}"


def webhook(sequence: int, type_: str) -> tuple[str, dict[str, str], bytes]:
    event_id, now = f"msg_{sequence}", datetime.now(UTC)
    data = {"instanceId": INSTANCE_ID, "sequence": sequence}
    body = json.dumps({"type": type_, "data": data}).encode()
    headers = {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(WEBHOOK_SECRET).sign(event_id, now, body.decode()),
    }
    return event_id, headers, body


def machine(cloud_id: str, attempt: int = 1, *, alive: bool = True, charges: tuple[Row, ...] = ()) -> Row:
    return {"id": cloud_id, "name": name(attempt), "alive": alive, "charges": [*charges]}


def span(**changed: Any) -> Row:
    """Return a span of the only machine: begun between two lists, a second apart, and gone on with."""
    row = dict.fromkeys((*MOMENTS, "amount_nusd", "instance_id"))
    about = {"id": 1, "cloud_id": "m1", "kind": "gpu", "instance_id": INSTANCE_ID, "ended_by": ""}
    rate = {"rate_nusd_h": RATE, "price_from": "rental", "began_by": "pulling"}
    return {**row, **about, **rate, "began_lo": 10 * SECOND, "began_hi": 11 * SECOND, **changed}


def call(attempt: int, began: float, ended: float | None) -> Row:
    return {"name": name(attempt), "began": began, "ended": ended}


def good_run() -> Evidence:
    """One request, of which the first create call came to nothing and the second gave a machine."""
    hooks = Receiver()
    hooks.got = [webhook(n, it) for n, it in enumerate(TYPES, 1)]
    row = {"id": INSTANCE_ID, "name": PLAN.name(0), "status": "running", "settled": True, "cloud_id": "m1"}
    about = {"instance_id": INSTANCE_ID}
    return Evidence(
        plan=PLAN,
        lived=[UserOutcome(0, {INSTANCE_ID})],
        hooks=hooks,
        machines=[machine("m1", 2, charges=(CHARGE,)), {**machine("other"), "name": "somebody"}],
        now_s=100.0,
        creates=[call(1, 1.0, 1.5), call(2, 9.0, 9.5)],
        tables={
            "installation": [{"key": "installation", "value": INSTALLATION}],
            "instance": [{**row, "cost_rate_nusd_h": RATE}],
            "meter": [span()],
            "ledger_day": [],
            "list_record": [
                {"id": n, "started_at": at, "finished_at": at, "complete": True, "witness": "seen"}
                for n, at in enumerate((SECOND, 99 * SECOND), 1)
            ],
            "attempt": [{"tag": tag(1), "state": "abandoned"}, {"tag": tag(2), "state": "bound"}],
            "claim": [{"key": f"{PLAN.name(0)}-create", **about}],
            "event": [{**about, "sequence": n, "type": it} for n, it in enumerate(TYPES, 1)],
            "delivery": [
                {"id": f"msg_{n}", **about, "sequence": n, "type": it, "body": webhook(n, it)[2], "tries": 1}
                for n, it in enumerate(TYPES, 1)
            ],
        },
        takeovers=[Takeover("create_instance", TERM_S)],
        boots_s=[],
        exit_codes=[0, 0],
        struck=1,
    )


def only(run: Evidence, table: str) -> Row:
    (row,) = run.tables[table]
    return row


def kinds(run: Evidence) -> set[str]:
    return {it.partition(":")[0] for it in check(run)}


def test_a_run_in_which_nothing_is_wrong_is_found_good() -> None:
    assert check(good_run()) == []


@pytest.mark.parametrize(("began_s", "found"), [(99.7, set()), (50.0, {"ledger"})])
def test_what_another_starts_is_missed_only_if_a_list_has_come_since(began_s: float, found: set[str]) -> None:
    run = good_run()
    # Known by its disk since the first list; its GPU was off then.
    disk = span(id=2, cloud_id="other", kind="disk", instance_id=None, rate_nusd_h=0)
    run.tables["meter"].append({**disk, "began_lo": SECOND, "began_hi": SECOND, "began_by": "listed"})
    run.machines[1]["charges"].append({**CHARGE, "from": began_s})
    assert kinds(run) == found


def end(run: Evidence, at_s: int, amount: int = 0) -> None:
    row = {"ended_lo": at_s * SECOND, "ended_hi": at_s * SECOND, "amount_nusd": amount}
    only(run, "meter").update(row)
    only(run, "instance").update(cost_rate_nusd_h=0)


SPOILT: dict[str, tuple[str, Callable[[Evidence], object]]] = {
    "a surplus machine that lives": ("orphan", lambda it: it.machines.append(machine("m2"))),
    "a surplus machine that was removed": (
        "duplicate",
        lambda it: it.machines.append(machine("m2", alive=False)),
    ),
    "a span that ended too early": ("ledger", lambda it: end(it, 50)),
    "a machine without a span": ("ledger", lambda it: it.tables["meter"].clear()),
    "a span at another price": ("ledger", lambda it: only(it, "meter").update(rate_nusd_h=2 * RATE)),
    "a second in two spans": ("ledger", lambda it: it.tables["meter"].append(span(id=2, kind="gpu"))),
    "a sum that was not written": ("ledger", lambda it: end(it, 100, amount=RATE // 40)),
    "an instance that costs something else": (
        "ledger",
        lambda it: only(it, "instance").update(cost_rate_nusd_h=0),
    ),
    "a machine that vanished": ("lost", lambda it: it.machines.pop(0)),
    "an instance without machine": ("lost", lambda it: only(it, "instance").update(cloud_id=None)),
    "a lost instance": ("duplicate", lambda it: it.tables["instance"].clear()),
    "two instances for one key": ("duplicate", lambda it: it.lived[0].ids.add("inst_other")),
    "a claim to another instance": ("duplicate", lambda it: only(it, "claim").update(instance_id="inst_x")),
    "a doubled create": ("create", lambda it: it.creates.append(call(2, 10.0, 10.5))),
    "two creates under way together": ("create", lambda it: it.creates[0].update(ended=9.1)),
    "a create that is still under way": ("create", lambda it: it.creates[0].update(ended=None)),
    "a create that nobody wrote down": ("create", lambda it: it.tables["attempt"].pop(0)),
    "a machine that nobody asked for": ("create", lambda it: it.creates.pop()),
    "an attempt of unknown end": ("unended", lambda it: it.tables["attempt"][0].update(state="unknown")),
    "an instance that is not at rest": ("unended", lambda it: only(it, "instance").update(settled=False)),
    "another end than was asked for": ("unended", lambda it: only(it, "instance").update(status="exited")),
    "a user who waits": ("unended", lambda it: it.problems.append("a request never came to its end")),
    "a process that ended badly": ("unended", lambda it: it.exit_codes.append(1)),
    "a failure without a reason": (
        "unended",
        lambda it: setattr(it.lived[0], "failed", {"statusReason": "", "lastError": None}),
    ),
    "a webhook that did not come": ("webhook", lambda it: it.hooks.got.pop(0)),
    "a webhook that nobody wrote down": ("webhook", lambda it: it.tables["delivery"].pop()),
    "a webhook with other bytes": (
        "webhook",
        lambda it: it.tables["delivery"][0].update(body=b"{}"),
    ),
    "a webhook that tells of nothing": ("webhook", lambda it: it.tables["event"].pop()),
    "a gap in the history": ("webhook", lambda it: it.tables["event"].pop(1)),
    "a webhook with two ids": (
        "webhook",
        lambda it: it.tables["delivery"].append({**it.tables["delivery"][0], "id": "msg_9"}),
    ),
    "work that lay about": (
        "takeover",
        lambda it: it.takeovers.append(Takeover("send_webhook", TERM_S * TERMS_MAX + 0.1)),
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_wrong_is_found(what: str) -> None:
    kind, spoil = SPOILT[what]
    run = good_run()
    spoil(run)
    assert kind in kinds(run)


@pytest.mark.parametrize(
    ("links", "left", "gone_s", "found"),
    [
        ((1, 2), 1, 20.0, False),
        ((1, 2, 2), 1, 20.0, True),
        ((1,), 1, 20.0, True),
        ((1, 2), 2, 20.0, True),
        ((1, 2), 0, 20.0, True),
        # The third came before the first had gone.
        ((1, 2, 3), 1, 20.0, False),
        ((1, 2, 3), 1, 31.0, True),
    ],
)
def test_a_lineage_has_one_instance_for_each_link_and_two_machines_at_most(
    links: tuple[int, ...], left: int, gone_s: float, found: bool
) -> None:
    statuses = ["deleted"] * (len(links) - left) + ["running"] * left
    members = [
        {"id": f"i{n}", "link": link, "lineage": "i0", "status": status}
        for n, (link, status) in enumerate(zip(links, statuses, strict=True))
    ]
    machines = [
        {"name": f"job--{n}", "createdAt": 10.0 * n, "goneAt": None if n == len(links) else gone_s + n - 1}
        for n in range(1, len(links) + 1)
    ]
    assert bool([*lineage_violations("job", members, machines)]) is found


def test_terms_are_counted_from_the_death() -> None:
    assert [terms(it * TERM_S) for it in (0.1, 1.0, 1.1, 2.0, 2.5)] == [1, 1, 2, 2, 3]
