"""I19: whatever was in use, or may have been, is not ended for idleness; and never many at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from gpuherd.domain.blast_limit import blast_limit
from gpuherd.domain.instance.idleness import Utilization
from gpuherd.domain.instance.instance_event import CauseCode
from gpuherd.domain.instance.lease import Idleness
from proof.chaos.checks.ends_checker import BEAT_KEPT_S, EPSILON_S, Ended, ends_of
from proof.chaos.checks.evidence import Evidence, Violation

# Samples come every minute, and one that is missing leaves a gap of two.
SAMPLE_GAP_MAX = timedelta(seconds=91)
# The newest sample is a minute old, and the next one may be a minute away: what began since then nobody saw.
UNSEEN_S = 180.0
# What has just come up may look idle, and is given this.
GRACE_S = 900.0
# Within this no more than the brake lets end.
BRAKE_SPAN_S = 300.0


def check_idleness(evidence: Evidence) -> Iterator[Violation]:
    """I19: evidence for the whole time, no word of a user in it, and the brake."""
    if not evidence.ends.versions:
        return
    ended = ends_of(evidence, CauseCode.IDLE_ENDED)
    for it in ended:
        yield from _check_evidence(evidence, it)
    yield from _check_brake(evidence, ended)


def _check_evidence(evidence: Evidence, ended: Ended) -> Iterator[Violation]:
    it = evidence.ends.version_at(ended.instance_id, ended.at_s)
    assert it is not None and it.terms.idle is not None
    rule, cloud_id = it.terms.idle, it.cloud_id or ""
    replies = [found for at_s, found in evidence.ends.samples[cloud_id] if at_s <= ended.at_s]
    quiet = _quiet_for(replies[-1] if replies else (), rule)
    if quiet < rule.window:
        words = f"{it.id} ended for idleness of {rule.window_s} s, and was seen idle for {quiet}"
        yield Violation("I19 idle", words)
    beats = [beat_s for beat_s in evidence.ends.beats_s[it.id] if beat_s < ended.at_s]
    if beats and beats[-1] + rule.window_s - BEAT_KEPT_S > ended.at_s + EPSILON_S:
        yield Violation(
            "I19 idle", f"{it.id} ended {ended.at_s - beats[-1]:.0f} s after the word of its user"
        )
    if evidence.ends.plan.zeros is None and _was_used(evidence, cloud_id, rule, ended.at_s):
        yield Violation("I19 idle", f"{it.id} ended for idleness, and was used meanwhile")


def _quiet_for(samples: tuple[Utilization, ...], rule: Idleness) -> timedelta:
    """Return how long a machine was idle up to the newest sample, without a gap."""
    newest_first = sorted(samples, key=lambda it: it.at, reverse=True)
    idle: list[Utilization] = []
    for sample in newest_first:
        if sample.cpu >= rule.cpu_below or any(gpu >= rule.gpu_below for gpu in sample.gpus):
            break
        if idle and idle[-1].at - sample.at > SAMPLE_GAP_MAX:
            break
        idle.append(sample)
    return idle[0].at - idle[-1].at if idle else timedelta(0)


def _was_used(evidence: Evidence, cloud_id: str, rule: Idleness, ended_s: float) -> bool:
    """Tell whether the machine was really busy in the time that was looked at, whatever the metrics said."""
    now = evidence.origin_s + ended_s
    begin, end = now - rule.window_s, now - UNSEEN_S
    trace = evidence.world.uses.traces.get(cloud_id, [])
    spans = [*pairwise(trace), *((it, None) for it in trace[-1:])]
    return not trace or any(
        (use.gpu >= rule.gpu_below or use.cpu >= rule.cpu_below)
        # Longer than samples are apart, or none may have shown it.
        and min(end, end if following is None else following.at) - max(begin, use.at) > 60.0
        for use, following in spans
    )


def _check_brake(evidence: Evidence, ended: list[Ended]) -> Iterator[Violation]:
    for n, last in enumerate(ended):
        together = [it for it in ended[: n + 1] if it.at_s > last.at_s - BRAKE_SPAN_S]
        allowed = blast_limit(len(evidence.ends.versions))
        if len(together) > allowed:
            yield Violation("I19 brake", f"{len(together)} ended for idleness within {BRAKE_SPAN_S:.0f} s")
    braked_s = evidence.ends.braked_s
    if evidence.ends.plan.zeros is None or braked_s is None or any(evidence.ends.beats_s.values()):
        return
    # Metrics that say zero for all have been noticed, and nobody is in use again: nothing more ends, neither
    # then nor two by two later, of what could have ended by then.
    for it in ended:
        if it.at_s > braked_s and _could_end(evidence, it, braked_s):
            yield Violation("I19 brake", f"{it.instance_id} ended for idleness after the brake")


def _could_end(evidence: Evidence, ended: Ended, at_s: float) -> bool:
    """Tell whether it had been usable, and not spoken for, for long enough by then."""
    versions = [it for it in evidence.ends.versions[ended.instance_id] if it.at_s < ended.at_s]
    rule = versions[-1].instance.terms.idle
    assert rule is not None
    usable_s = next(it.at_s for it in versions if it.instance.usable)
    beats_s = evidence.ends.beats_s[ended.instance_id]
    spoken_s = max((it for it in beats_s if it < ended.at_s), default=0.0)
    return max(usable_s + max(rule.window_s, GRACE_S), spoken_s + rule.window_s) <= at_s
