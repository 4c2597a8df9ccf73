"""What users do about the ends of their instances: longer leases, also in the last second, and heartbeats."""

from __future__ import annotations

from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Instance
from gpuherd.usecases.instances.change_lease import LeaseOrder
from proof.chaos.ends.evidence import LeaseAnswer
from proof.chaos.harness import Harness
from proof.chaos.operation import UserOperation
from proof.chaos.process import Process

# For so long a user waits for a lease to begin whose end is to be met.
PATIENCE_S, LOOK_S = 600.0, 5.0
# Whoever does not want to be taken for dead says so three times in the time.
BEATS_IN_TIME = 3
SHORTEST_BEAT_S = 4.0


async def extend_lease(harness: Harness, instance_id: str, op: UserOperation) -> None:
    """Ask for a lease of so many seconds from now; or as near to the end of the present one as was drawn."""
    if op.before_end_s is not None and not await _wait_for_end(harness, instance_id, op.before_end_s):
        return

    async def extend(process: Process) -> Instance:
        return await process.extend(instance_id, LeaseOrder(op.seconds))

    refused = ""
    try:
        await harness.ask(extend)
    except GpuherdError as error:
        refused = error.code
    harness.say(f"user: lease of {op.seconds} s for {instance_id} {refused or 'accepted'}")
    harness.evidence.ends.answers.append(LeaseAnswer(harness.clock.elapsed_s, instance_id, refused))


async def _wait_for_end(harness: Harness, instance_id: str, before_s: float) -> bool:
    until_s = harness.clock.elapsed_s + PATIENCE_S
    while harness.clock.elapsed_s < until_s and not harness.calm:
        promises = harness.evidence.ends.promises[instance_id]
        left_s = promises[-1].ends_s - before_s - harness.clock.elapsed_s if promises else LOOK_S
        if promises and left_s <= LOOK_S:
            await harness.clock.sleep(max(left_s, 0.0))
            harness.evidence.coverage["extension near the end"] += 1
            return True
        await harness.clock.sleep(LOOK_S)
    return False


async def send_beats(harness: Harness, instance_id: str, op: UserOperation) -> None:
    """Say every now and then that an instance is in use, for as long as its user lives."""
    terms = op.terms
    times = [
        it for it in (terms.silence and terms.silence.silence_s, terms.idle and terms.idle.window_s) if it
    ]
    every_s = max(SHORTEST_BEAT_S, min(times, default=60) / BEATS_IN_TIME)
    until_s = harness.clock.elapsed_s + op.beats_for_s
    while harness.clock.elapsed_s < until_s and not harness.calm:
        begin_s = harness.clock.elapsed_s
        try:
            await harness.ask(lambda process: process.heartbeat(instance_id))
        except GpuherdError as error:
            harness.say(f"user: beat refused {error.code}")
        else:
            # It counts from when it was asked at the latest, and from when it was answered at the earliest.
            harness.evidence.ends.beats_s[instance_id].append(begin_s)
        await harness.clock.sleep(every_s)
