"""Holds the ends of a run of real processes to their times: never early, and asked within seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from proof.chaos.kills.plan import BY_LEASE
from proof.chaos.kills.runner import Evidence

# Of the end, or of when the service was up again.
WITHIN_S = 10.0
# The clocks of the cloud and of the service are one, but a moment passes between a look and its stamp.
EPSILON_S = 0.1

Row = dict[str, Any]


def check_ends(run: Evidence, tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield each lease that ended early or late, and each machine that ran on after its end."""
    by_id = {it["id"]: it for it in tables["instance"]}
    machines = {it["id"]: it for it in run.machines}
    for n, script in enumerate(run.plan.scripts):
        instance = by_id.get(run.instance_ids[n])
        if script not in BY_LEASE or instance is None:
            continue
        doc = json.loads(instance["doc"])
        ended = [it for it in tables["event"] if _is_end(it, instance["id"])]
        if len(ended) != 1:
            yield f"{run.plan.name(n)} has {len(ended)} ends of its lease"
            continue
        ended_s, due_s = ended[0]["at"] / 1e6, _seconds(doc["lease_term"]["ends_at"])
        if ended_s < due_s - EPSILON_S:
            yield f"{run.plan.name(n)} ended {due_s - ended_s:.1f} s before its lease did"
        if ended_s > _latest(run, due_s):
            yield f"{run.plan.name(n)} ended {ended_s - due_s:.1f} s after its lease did"
        machine = machines.get(instance["cloud_id"] or doc.get("former_cloud_id") or "")
        for charge in () if machine is None else machine["charges"]:
            if charge["kind"] == "gpu" and charge["to"] > _latest(run, ended_s) + EPSILON_S:
                yield f"{run.plan.name(n)} ran on for {charge['to'] - ended_s:.1f} s after its end"


def _is_end(event: Row, instance_id: str) -> bool:
    return bool(event["instance_id"] == instance_id and event["type"] == "instance.lease_ended")


def _latest(run: Evidence, due_s: float) -> float:
    """Return by when it must have happened: each start of the service gives it as long again."""
    latest_s = due_s + WITHIN_S
    for ready_s in sorted(run.ready_at_s):
        if due_s < ready_s:
            latest_s = max(latest_s, ready_s + WITHIN_S)
    return latest_s


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
