"""Holds a run to its promises: the truth of the cloud, the database file, what the receiver got, our log."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from gpuherd.domain.instance.rent_attempt import Tag, parse_tag
from proof.chaos.kills.ends_checker import check_ends
from proof.chaos.kills.ledger_checker import LEDGER_TABLES, Bill, check_ledger
from proof.chaos.kills.plan import BY_ITSELF, UserScript
from proof.chaos.kills.runner import Evidence
from tests.support.processes.services import KEY
from tests.support.webhooks.checker import webhook_violations

SECRETS = ("sk_test_canary_novita_key", "Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTAxMjM0NTY3", KEY)
WEBHOOK_SECRET = f"whsec_{SECRETS[1]}"
EXPECTED_WEBHOOKS = {
    UserScript.KEEP: ("instance.created", "instance.ready"),
    UserScript.STOP: ("instance.created", "instance.ready", "instance.exited"),
    UserScript.RESTART: ("instance.created", "instance.ready", "instance.exited"),
    UserScript.DELETE: ("instance.created", "instance.ready", "instance.deleted"),
    UserScript.DELETE_AT_ONCE: ("instance.created", "instance.deleted"),
    UserScript.LEASE: ("instance.created", "instance.lease_ended"),
    UserScript.LEASE_DELETE: ("instance.created", "instance.lease_ended", "instance.deleted"),
    UserScript.BUDGET: ("instance.created",),
    UserScript.REPLACED: ("instance.created", "instance.ready", "instance.replacing", "instance.deleted"),
}
GONE = (UserScript.DELETE, UserScript.DELETE_AT_ONCE, UserScript.REPLACED)
TABLES = ("installation", "instance", "attempt", "delivery", "event", "job")

Row = dict[str, Any]


def check(run: Evidence) -> list[str]:
    """Return every broken promise, as `kind: what`."""
    with closing(sqlite3.connect(run.database)) as database:
        database.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")]
            for name in {*TABLES, *LEDGER_TABLES}
        }
        verdicts = [row[0] for row in database.execute("PRAGMA integrity_check")]
        strays = database.execute("PRAGMA foreign_key_check").fetchall()
    found = [f"unended: {it}" for it in run.problems]
    found += [f"integrity: {it}" for it in (*verdicts, *map(tuple, strays)) if it != "ok"]
    found += _machines(run, tables)
    found += _records(run, tables)
    found += _webhooks(run, tables)
    found += _secrets(run)
    found += [f"end: {it}" for it in check_ends(run, tables)]
    found += [f"ledger: {it}" for it in check_ledger(tables, Bill(run.machines, run.now_s))]
    if run.exit_code != 0:
        found.append(f"unended: a polite end gave the exit code {run.exit_code}")
    return found


def our_machines(run: Evidence, installation: str) -> list[tuple[Tag, Row]]:
    """Return what this run has ever rented, by the tag in its name."""
    tagged = [(parse_tag(it["name"]), it) for it in run.machines]
    return [(tag, it) for tag, it in tagged if tag is not None and tag.installation == installation]


def _installation(tables: dict[str, list[Row]]) -> str:
    return str(next(it["value"] for it in tables["installation"] if it["key"] == "installation"))


def _machines(run: Evidence, tables: dict[str, list[Row]]) -> Iterator[str]:
    ours = our_machines(run, _installation(tables))
    alive = {it["id"] for _, it in ours if it["alive"]}
    bound = {it["cloud_id"] for it in tables["instance"] if it["goal"] != "deleted" and it["cloud_id"]}
    yield from (f"orphan: {it} is alive and belongs to no instance" for it in sorted(alive - bound))
    yield from (f"lost: {it} is gone, and nobody asked for that" for it in sorted(bound - alive))
    rented = Counter(tag.instance_key for tag, _ in ours)
    yield from (f"duplicate: {n} machines were rented for {key}" for key, n in rented.items() if n > 1)
    intents = {it["tag"] for it in tables["attempt"]}
    yield from (f"orphan: {tag} was rented without an intent" for tag, _ in ours if str(tag) not in intents)


def _records(run: Evidence, tables: dict[str, list[Row]]) -> Iterator[str]:
    known = Counter(it["name"] for it in tables["instance"])
    # A cloud may be shared with runs of the same names.
    ours = [it for _, it in our_machines(run, _installation(tables))]
    scripts = {run.plan.name(n): script for n, script in enumerate(run.plan.scripts)}
    for name in sorted(it for it, script in scripts.items() if script is UserScript.REPLACED):
        members = [it for it in tables["instance"] if it["name"] == name]
        yield from lineage_violations(name, members, ours)
    wanted = {name for name, script in scripts.items() if script is not UserScript.REPLACED}
    for name in sorted(wanted):
        if known[name] != 1:
            yield f"duplicate: one request made {known[name]} instances"
    for it in tables["instance"]:
        if not it["settled"]:
            yield f"unended: {it['name']} is {it['status']} and not at rest"
    for it in tables["attempt"]:
        if it["state"] in ("sent", "unknown"):
            yield f"unended: {it['tag']} is {it['state']}"
    statuses = {it["id"]: it["status"] for it in tables["instance"]}
    for n, script in enumerate(run.plan.scripts):
        status = statuses.get(run.instance_ids[n])
        expected = "deleted" if script in GONE else "exited" if script is UserScript.STOP else "running"
        if script in BY_ITSELF and status in ("exited", "deleted"):
            continue
        if status != expected:
            yield f"unended: {run.plan.name(n)} is {status} in the end, not {expected}"


def lineage_violations(name: str, members: list[Row], machines: list[Row]) -> Iterator[str]:
    """One instance for each link, all but the last of them gone; never more than two machines at once."""
    links = sorted(it["link"] or 1 for it in members)
    if links != list(range(1, len(members) + 1)) or len({it["lineage"] for it in members}) > 1:
        yield f"duplicate: the links of {name} are {links}"
    if len(members) < 2:
        yield f"unended: nobody has taken over from {name}"
    left = [it["id"] for it in members if it["status"] != "deleted"]
    if len(left) != 1:
        yield f"duplicate: {left} of {name} are left"
    lives = [
        (it["createdAt"], math.inf if it["goneAt"] is None else it["goneAt"])
        for it in machines
        if it["name"].startswith(f"{name}--")
    ]
    at_once = max((sum(began <= one < gone for began, gone in lives) for one, _ in lives), default=0)
    if at_once > 2:
        yield f"duplicate: {at_once} machines of {name} were there at once"


def _webhooks(run: Evidence, tables: dict[str, list[Row]]) -> Iterator[str]:
    yield from (f"webhook: {it}" for it in webhook_violations(run.hooks.got, tables, WEBHOOK_SECRET))
    yield from _missing_webhooks(run)


def _missing_webhooks(run: Evidence) -> Iterator[str]:
    for n, script in enumerate(run.plan.scripts):
        if not (instance_id := run.instance_ids[n]):
            continue
        came = run.hooks.types(instance_id)
        missing = [it for it in EXPECTED_WEBHOOKS[script] if it not in came]
        if missing:
            yield f"webhook: nobody heard {', '.join(missing)} of {run.plan.name(n)}"
        if script is UserScript.RESTART and _count(run, instance_id, "instance.ready") != 2:
            yield f"webhook: {run.plan.name(n)} was ready twice, and said so another number of times"


def _count(run: Evidence, instance_id: str, type_: str) -> int:
    """Count different events, not arrivals."""
    told: Iterable[tuple[str, Row]] = ((event_id, json.loads(body)) for event_id, _, body in run.hooks.got)
    return len({i for i, it in told if it["type"] == type_ and it["data"]["instanceId"] == instance_id})


def _secrets(run: Evidence) -> Iterator[str]:
    stored = b"".join(it.read_bytes() for it in run.database.parent.rglob("*") if it.is_file())
    for where, content in (("the log", run.said), ("the data directory", stored)):
        for secret in SECRETS:
            if secret.encode() in content:
                yield f"secret: one of them is in {where}"
