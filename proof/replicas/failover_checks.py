"""Holds a run to its promises whose database was replaced by a standby that had lost the last second.

What was acknowledged in that second is gone: instances, intents, orders and what was told of them. So a call
may be without its intent, and a machine without its instance. But no instance may have two machines, every
machine must be known, and none may be gone that nobody asked to have removed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from proof.chaos.kills.checker import EXPECTED_WEBHOOKS, GONE
from proof.chaos.kills.plan import UserScript
from proof.replicas.checker import our_machines, unsettled, wrong_calls
from proof.replicas.runner import Evidence, Row
from proof.replicas.users import UserOutcome

ID_PREFIX = "inst_"


def check_failover(run: Evidence) -> list[str]:
    """Return every broken promise, as `kind: what`."""
    found = [f"unended: {it}" for it in run.problems]
    found += _machines(run)
    found += wrong_calls(run)
    found += _users(run)
    found += unsettled(run)
    found += [f"unended: a polite end gave the exit code {it}" for it in run.exit_codes if it]
    return found


def _machines(run: Evidence) -> Iterator[str]:
    ours = our_machines(run)
    yield from _duplicates(run)
    instances = {it["id"].removeprefix(ID_PREFIX): it for it in run.tables["instance"]}
    alive = {it["id"] for _, it in ours if it["alive"]}
    bound = Counter(it["cloud_id"] for it in instances.values() if it["status"] not in ("deleted", "failed"))
    reported = {it["cloud_id"] for it in run.tables["orphan"] if it["gone_at"] is None}
    seen = {it["cloud_id"] for it in run.tables["sighting"]}
    yield from (f"duplicate: {it} belongs to {n} instances" for it, n in bound.items() if n > 1)
    yield from (
        f"lost: {it} is gone, and nobody asked for that" for it in sorted(set(bound) - alive - {None})
    )
    yield from (f"orphan: {it} was never seen" for it in sorted(alive - seen))
    removable = _removable(run)
    for tag, machine in ours:
        known = machine["id"] in bound or machine["id"] in reported
        if machine["alive"] and not known:
            yield f"orphan: {machine['id']} is alive, belongs to no instance, and is not reported"
        if not machine["alive"] and tag.instance_key not in removable:
            yield f"lost: {machine['id']} of {tag.instance_key} was removed, and nobody asked for that"
        if machine["alive"] and machine["id"] not in bound and tag.instance_key in instances:
            yield f"orphan: {machine['id']} is alive, and its instance {tag.instance_key} has another or none"


def _duplicates(run: Evidence) -> Iterator[str]:
    rented: dict[str, list[Row]] = defaultdict(list)
    for tag, machine in our_machines(run):
        rented[tag.instance_key].append(machine)
    ordered = {it.removeprefix(ID_PREFIX) for user in run.lived if user.delete_accepted for it in user.ids}
    for key, machines in rented.items():
        if len(machines) > 1 and not (key in ordered and _is_rented_again(machines)):
            yield f"duplicate: {len(machines)} machines were rented for {key}"


def _is_rented_again(machines: Sequence[Row]) -> bool:
    """Tell whether the first of two was gone before the second was made.

    Where a wish was served and its machine deleted, as was ordered, within the moments that were lost, the
    database knows only the wish, and nothing on the account tells that it was served (R2). Nobody pays for
    two at once, and the order is given again by whoever finds the instance there.
    """
    machines = sorted(machines, key=lambda it: it["createdAt"])
    gone_at = machines[0]["goneAt"]
    return len(machines) == 2 and gone_at is not None and gone_at <= machines[1]["createdAt"]


def _removable(run: Evidence) -> set[str]:
    """Return the keys of all instances whose machine somebody wanted to have removed."""
    asked = {
        it.removeprefix(ID_PREFIX)
        for user in run.lived
        if run.plan.scripts[user.n] in GONE
        for it in (*user.ids, *user.lost)
    }
    ended = {
        it["id"].removeprefix(ID_PREFIX)
        for it in run.tables["instance"]
        if it["status"] in ("deleted", "failed")
    }
    return asked | ended


def _users(run: Evidence) -> Iterator[str]:
    instances = {it["id"]: it for it in run.tables["instance"]}
    named = Counter(it["name"] for it in run.tables["instance"])
    told: dict[str, set[str]] = defaultdict(set)
    for _, _, body in run.hooks.got:
        it = json.loads(body)
        told[it["data"]["instanceId"]].add(it["type"])
    for user in run.lived:
        name, script = run.plan.name(user.n), run.plan.scripts[user.n]
        if named[name] != 1 or len(user.ids) != 1:
            yield f"duplicate: the key of {name} gave {named[name]} instances, {len(user.ids)} ids"
        status = instances.get(user.instance_id, {}).get("status")
        expected = "deleted" if script in GONE else "running"
        if _order_was_lost(user, status, told[user.instance_id]):
            continue
        if status != expected or user.failed is not None:
            yield f"unended: {name} is {status} in the end, not {expected}"
        # That it was ready may be lost, and its end asked for before it is ready again.
        wanted = EXPECTED_WEBHOOKS[UserScript.DELETE_AT_ONCE if script in GONE else script]
        if missing := [it for it in wanted if it not in told[user.instance_id]]:
            yield f"webhook: nobody heard {', '.join(missing)} of {name}"


def _order_was_lost(user: UserOutcome, status: str | None, told: set[str]) -> bool:
    """Tell whether an order to delete was carried out and then lost with the last second.

    It was acknowledged, and the machine is gone by our own call, which nobody remembers: its instance says
    that the machine vanished. Any other failure, or one without an order, is a broken promise.
    """
    error = (user.failed or {}).get("lastError") or {}
    vanished = status == "failed" and error.get("code") == "INSTANCE_VANISHED"
    return user.delete_accepted and vanished and "instance.failed" in told
