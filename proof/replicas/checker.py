"""Holds a run to its promises: the truth of the cloud, the database, what users and the receiver got."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuherd.adapters.stores.instance_locks import SHORT_LEASE_TERM
from gpuherd.domain.instance.rent_attempt import Tag, parse_tag
from proof.chaos.kills.checker import EXPECTED_WEBHOOKS, GONE, WEBHOOK_SECRET, lineage_violations
from proof.chaos.kills.ledger_checker import Bill, check_ledger
from proof.chaos.kills.plan import BY_LEASE, UserScript
from proof.replicas.runner import Evidence, Row, our_installation
from tests.support.webhooks.checker import webhook_violations

KINDS = ("orphan", "duplicate", "lost", "create", "unended", "webhook", "takeover", "ledger", "end")
# A worker without a heartbeat is given up about as soon as a lock of an instance.
TERM_S = max(SHORT_LEASE_TERM, timedelta(seconds=10)).total_seconds()
TERMS_MAX = 2
# What has reached its end is asked to end within this, by whoever is there.
END_WITHIN_S = 10.0
OPEN = ("sent", "unknown")


def check(run: Evidence) -> list[str]:
    """Return every broken promise, as `kind: what`."""
    found = [f"unended: {it}" for it in run.problems]
    found += _machines(run)
    found += _creates(run)
    found += _records(run)
    found += _ends(run)
    found += _webhooks(run)
    found += [f"ledger: {it}" for it in check_ledger(run.tables, Bill(run.machines, run.now_s))]
    found += [
        f"takeover: a {it.kind} lay about for {it.took_s:.1f} s, {terms(it.took_s)} terms"
        for it in run.takeovers
        if terms(it.took_s) > TERMS_MAX
    ]
    found += [f"unended: a polite end gave the exit code {it}" for it in run.exit_codes if it]
    return found


def terms(took_s: float) -> int:
    """Return in which term of a lease it was, counted from the death."""
    return math.ceil(took_s / TERM_S)


def our_machines(run: Evidence) -> list[tuple[Tag, Row]]:
    """Return what this run has ever rented, by the tag in its name."""
    installation = our_installation(run.tables)
    tagged = [(parse_tag(it["name"]), it) for it in run.machines]
    return [(tag, it) for tag, it in tagged if tag is not None and tag.installation == installation]


def our_creates(run: Evidence) -> list[tuple[Tag, Row]]:
    """Return every create call of this run, in the order in which they came."""
    installation = our_installation(run.tables)
    tagged = [(parse_tag(it["name"]), it) for it in run.creates]
    return [(tag, it) for tag, it in tagged if tag is not None and tag.installation == installation]


def _machines(run: Evidence) -> Iterator[str]:
    ours = our_machines(run)
    alive = {it["id"] for _, it in ours if it["alive"]}
    live = [it for it in run.tables["instance"] if it["status"] not in ("deleted", "failed")]
    bound = [it["cloud_id"] for it in live if it["cloud_id"]]
    yield from (f"orphan: {it} is alive and belongs to no instance" for it in sorted(alive.difference(bound)))
    yield from (f"lost: {it} is gone, and nobody asked for that" for it in sorted(set(bound) - alive))
    yield from (
        f"lost: {it['name']} is {it['status']} and has no machine" for it in live if not it["cloud_id"]
    )
    yield from (f"duplicate: {it} belongs to {n} instances" for it, n in Counter(bound).items() if n > 1)
    rented = Counter(tag.instance_key for tag, _ in our_machines(run))
    yield from (f"duplicate: {n} machines were rented for {key}" for key, n in rented.items() if n > 1)


def _creates(run: Evidence) -> Iterator[str]:
    attempts = {it["tag"] for it in run.tables["attempt"]}
    sent = Counter(str(tag) for tag, _ in our_creates(run))
    yield from (f"create: {n} calls were made for the one attempt {tag}" for tag, n in sent.items() if n > 1)
    yield from (f"create: {tag} was sent without an intent" for tag in sent if tag not in attempts)
    made = {str(tag) for tag, _ in our_machines(run)}
    yield from (f"create: {tag} has a machine and was never sent" for tag in made if tag not in sent)
    yield from wrong_calls(run)


def wrong_calls(run: Evidence) -> Iterator[str]:
    """Return what no lost second excuses: a machine without a call, or two calls at once."""
    calls = our_creates(run)
    sent = {str(tag) for tag, _ in calls}
    bound = {it["tag"] for it in run.tables["attempt"] if it["state"] == "bound"}
    yield from (f"create: {tag} is bound and was never sent" for tag in bound if tag not in sent)
    by_instance: dict[str, list[Row]] = defaultdict(list)
    for tag, call in calls:
        by_instance[tag.instance_key].append(call)
    for key, theirs in by_instance.items():
        for one, following in itertools.pairwise(theirs):
            if one["ended"] is None or following["began"] < one["ended"]:
                yield f"create: two calls for {key} were under way together"


def _records(run: Evidence) -> Iterator[str]:
    claimed: dict[str, set[str]] = defaultdict(set)
    for it in run.tables["claim"]:
        claimed[it["key"]].add(it["instance_id"])
    for user in run.lived:
        name = run.plan.name(user.n)
        ids = user.ids | claimed[f"{name}-create"]
        members = [it for it in run.tables["instance"] if it["name"] == name]
        if run.plan.scripts[user.n] is UserScript.REPLACED and user.failed is None:
            yield from lineage_violations(name, members, [it for _, it in our_machines(run)])
        elif len(members) != 1:
            yield f"duplicate: one request of {name} made {len(members)} instances"
        if len(ids) != 1:
            yield f"duplicate: the key of {name} gave {len(ids)} ids"
    yield from unsettled(run)


def unsettled(run: Evidence) -> Iterator[str]:
    """Return what is not at rest although there was time enough."""
    for it in run.tables["instance"]:
        if not it["settled"]:
            yield f"unended: {it['name']} is {it['status']} and not at rest"
    for it in run.tables["attempt"]:
        if it["state"] in OPEN:
            yield f"unended: {it['tag']} is {it['state']}"


def _ends(run: Evidence) -> Iterator[str]:
    instances = {it["id"]: it for it in run.tables["instance"]}
    for user in run.lived:
        name, script = run.plan.name(user.n), run.plan.scripts[user.n]
        status = instances.get(user.instance_id, {}).get("status")
        if user.failed is not None:
            if status != "failed" or not user.failed["statusReason"] or not user.failed["lastError"]:
                yield f"unended: {name} failed without a reason, and is {status} now"
            continue
        expected = "deleted" if script in GONE else "exited" if script is UserScript.STOP else "running"
        if script in BY_LEASE:
            yield from _lease_ends(run, instances[user.instance_id])
            continue
        if status != expected:
            yield f"unended: {name} is {status} in the end, not {expected}"


def _lease_ends(run: Evidence, instance: Row) -> Iterator[str]:
    """Ended once, not early; and in time, though whoever was at it stood still for longer than its term."""
    name, doc = instance["name"], instance["doc"]
    doc = json.loads(doc) if isinstance(doc, str) else doc
    ended = [
        it["at"] / 1e6
        for it in run.tables["event"]
        if it["instance_id"] == instance["id"] and it["type"] == "instance.lease_ended"
    ]
    if len(ended) != 1:
        yield f"end: {name} has {len(ended)} ends of its lease"
        return
    due_s = datetime.fromisoformat(doc["lease_term"]["ends_at"]).timestamp()
    latest_s = due_s + END_WITHIN_S + TERMS_MAX * TERM_S
    if not due_s - 0.1 <= ended[0] <= latest_s:
        yield f"end: {name} ended {ended[0] - due_s:.1f} s after its lease did"
    paid = [
        charge
        for machine in run.machines
        if machine["name"].startswith(f"{name}--")
        for charge in machine["charges"]
        if charge["kind"] == "gpu"
    ]
    if len(paid) > 1 or any(it["to"] > ended[0] + END_WITHIN_S + TERMS_MAX * TERM_S for it in paid):
        yield f"end: {name} was paid for in {len(paid)} spans, and for too long after its end"


def _webhooks(run: Evidence) -> Iterator[str]:
    yield from (f"webhook: {it}" for it in webhook_violations(run.hooks.got, run.tables, WEBHOOK_SECRET))
    yield from _missing_webhooks(run)


def _missing_webhooks(run: Evidence) -> Iterator[str]:
    came: dict[str, dict[int, str]] = defaultdict(dict)
    for _, _, body in run.hooks.got:
        it = json.loads(body)
        came[it["data"]["instanceId"]][it["data"]["sequence"]] = it["type"]
    for user in run.lived:
        told = came[user.instance_id].values()
        wanted = (
            ("instance.created", "instance.failed")
            if user.failed
            else EXPECTED_WEBHOOKS[run.plan.scripts[user.n]]
        )
        if missing := [it for it in wanted if it not in told]:
            yield f"webhook: nobody heard {', '.join(missing)} of {run.plan.name(user.n)}"
