"""When the service could have done something at all: what it is not able to do, nobody may expect of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from proof.chaos.checks.evidence import Evidence

# A call of this length or more holds whoever has made it up.
LONG_CALL_S = 1.0
# A step of the clock is written down by the next sweep: in the seconds before a kill it may be lost.
STEP_KEPT_WITHIN_S = 6.0


class Abilities:
    """What a schedule forbade, and for how long."""

    def __init__(self, evidence: Evidence):
        ends = evidence.ends
        self._down = sorted((it.begin_s, it.end_s) for it in evidence.down)
        self._jumps = sorted(evidence.jumps)
        self._long_calls = _united(
            [(it.begin_s, it.end_s) for it in ends.calls if it.end_s - it.begin_s >= LONG_CALL_S]
        )
        lists = sorted(it.end_s for it in ends.calls if it.method == "list_machines" and not it.error)
        # Nothing is done before a list has shown whose account this is.
        self._ready = [
            next((at for at in lists if at >= life), float("inf")) for life in sorted(ends.lives_s)
        ]
        self._lives = sorted(ends.lives_s)

    def life_begin(self, at_s: float) -> float:
        """Return when the life of the process began that was under way before this moment."""
        return self._lives[max(0, bisect_left(self._lives, at_s) - 1)]

    def latest(self, due_s: float, within_s: float) -> float:
        """Return by when something must have been done that was due, and takes so long at most."""
        limit_s = self._able(due_s) + within_s
        while True:
            crash_s = next((begin for begin, _ in self._down if due_s < begin <= limit_s), None)
            if crash_s is not None:
                due_s = next(end for begin, end in self._down if begin == crash_s)
                limit_s = self._able(due_s) + within_s
                continue
            held_s = sum(
                min(end, limit_s) - max(begin, due_s)
                for begin, end in self._long_calls
                if begin < limit_s and end > due_s
            )
            longer_s = self._able(due_s) + within_s + held_s
            if longer_s <= limit_s + 1e-6:
                return limit_s
            limit_s = longer_s

    def _able(self, at_s: float) -> float:
        at_s = next((end for begin, end in self._down if begin <= at_s < end), at_s)
        life = bisect_right(self._lives, at_s) - 1
        return max(at_s, self._ready[life]) if life >= 0 else at_s

    def lost_ahead_s(self, since_s: float, until_s: float) -> float:
        """Return how far the clock was set ahead meanwhile without anybody able to tell, or to keep it.

        It was set while nobody ran, or just before a kill; or it was set back, and ahead again by another
        process: that cannot know that what it reads was written by a clock that was later than its own.
        """
        steps = [(at_s, step_s) for at_s, step_s in self._jumps if since_s <= at_s <= until_s]
        is_mixed = any(step_s < 0 and self._ended_since(at_s, until_s) for at_s, step_s in steps)
        return sum(step_s for at_s, step_s in steps if step_s > 0 and (is_mixed or self._is_lost(at_s)))

    def forgotten_ahead_s(self, since_s: float, until_s: float) -> float:
        """Return how far the clock was set ahead meanwhile, where a process has ended since a step.

        When something was stopped is not written anew for a step, as the end of a lease is.
        """
        steps = [(at_s, step_s) for at_s, step_s in self._jumps if since_s <= at_s <= until_s]
        is_forgotten = any(self._ended_since(at_s, until_s) for at_s, _ in steps)
        return sum(step_s for _, step_s in steps if step_s > 0) if is_forgotten else 0.0

    def _ended_since(self, at_s: float, until_s: float) -> bool:
        return any(at_s <= begin <= until_s for begin, _ in self._down)

    def set_back_s(self, since_s: float, until_s: float) -> float:
        """Return how far the clock was set back meanwhile: what is due by the clock comes that much later."""
        return -sum(step_s for at_s, step_s in self._jumps if since_s <= at_s <= until_s and step_s < 0)

    def _is_lost(self, at_s: float) -> bool:
        return any(begin - STEP_KEPT_WITHIN_S <= at_s <= end for begin, end in self._down)

    def forbidden_s(self, since_s: float, until_s: float) -> float:
        """Return for how long in a span nothing could be done."""
        spans = _united([*self._down, *self._long_calls])
        return sum(max(0.0, min(end, until_s) - max(begin, since_s)) for begin, end in spans)


def _united(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
