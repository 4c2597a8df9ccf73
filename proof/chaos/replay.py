"""Plays one seed again and prints everything about it."""

from __future__ import annotations

import json
import time

from proof.chaos.checks.checker import check
from proof.chaos.checks.evidence import Evidence
from proof.chaos.output import tell
from proof.chaos.runner import run_schedule
from proof.chaos.schedules import Schedule, draw_schedule


def replay(seed: int, profile: str) -> int:
    """Answer 1 if a promise was broken."""
    begin_s = time.perf_counter()
    schedule = draw_schedule(seed, profile)
    _tell_plan(schedule)
    evidence, harness = run_schedule(schedule)
    for at_s, line in harness.trace:
        tell(f"{at_s:12.3f} {line}")
    _tell_ends(evidence)
    violations = check(evidence, abandoned_may_overlap=profile == "late")
    for violation in violations:
        tell(f"BROKEN {violation}")
    tell(
        f"trace {harness.trace_hash()[:16]}: {evidence.crashes} crashes, "
        f"{evidence.ended_s:.0f} virtual seconds in {time.perf_counter() - begin_s:.2f}"
    )
    return int(bool(violations))


def _tell_plan(schedule: Schedule) -> None:
    fault_plan = schedule.fault_plan
    tell(f"seed {schedule.seed}, {schedule.profile}, elders {schedule.witness_instances}: {schedule.pace}")
    tell(f"weather: {', '.join(fault_plan.active_faults)}; odds of a crash {fault_plan.crash_probability}")
    for part in (schedule.id_reuse, schedule.account_swap, *schedule.ops, *fault_plan.faults):
        tell(f"  {part}")


def _tell_ends(evidence: Evidence) -> None:
    for row in evidence.tables.instances.values():
        it = row.instance
        tell(f"{it.id} {it.status} (goal {it.goal}) {it.cloud_id}: {it.reason}")
        for event in evidence.tables.events.values():
            if event.instance_id == it.id:
                details = json.dumps(event.details, default=str)[:80]
                change = f"{event.before}>{event.after}" if event.after else ""
                tell(f"  {event.at:%H:%M:%S} {event.type} {change} {event.reason} {details}")
        for attempt in evidence.tables.attempts.values():
            if attempt.instance_id == it.id:
                tell(f"  attempt {attempt.n} {attempt.state} {attempt.cloud_id} {attempt.error_code}")
    for line in evidence.world.record.lines:
        if line.endpoint not in ("list", "get"):
            at_s = line.at - evidence.origin_s
            tell(f"  cloud {at_s:9.3f} {line.endpoint} {line.machine_id} {line.outcome}")
