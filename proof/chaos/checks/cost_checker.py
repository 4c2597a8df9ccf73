"""I15: the ledger of costs against the simulated cloud's own bill, of which the service knows nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from gpuherd.domain.cloud.observation import Witness
from gpuherd.domain.money.span_rules import UNCLEAR
from gpuherd.domain.money.usage_span import NANO, CostSpan, PriceSource, doubt_nano
from gpuherd.simulator.simulated_bill import Span
from gpuherd.simulator.simulated_machine import SimulatedMachine, machine_charges
from proof.chaos.checks.evidence import Evidence, Violation

# What rounding may do to one span: less than a nano-dollar each way, and a microsecond at each edge.
ROUNDING_NANO = 10


def check_costs(evidence: Evidence) -> Iterator[Violation]:
    """I15: what each machine has cost is what the cloud charges, but for what we say we do not know."""
    spans: dict[tuple[str, str], list[CostSpan]] = defaultdict(list)
    for row in evidence.tables.spans.values():
        spans[row.span.cloud_id, row.span.kind.value].append(row.span)
    charged: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    machines = [*evidence.world.machines.values(), *(it.machine for it in evidence.former)]
    denied = {it.id for it in machines if _was_denied_to_the_end(evidence, it)}
    for machine in machines:
        for charge in machine_charges(machine, evidence.world.now()):
            key = charge.owner_id, charge.kind
            metered = charge.within(Span(_metered_since(evidence, spans[key]), evidence.world.now()))
            charged[key] += Fraction(0) if metered is None else metered.usd
    # What the lists of somebody else's account have shown cannot be on the bill of ours.
    strangers = set() if evidence.strangers is None else set(evidence.strangers.machines)
    for key in sorted({*spans, *charged}):
        if key[0] in denied | strangers:
            continue
        yield from _check_amount(evidence, key, spans[key], charged[key])
        if not evidence.jumps:
            # By a clock that was set back the same times come twice.
            yield from _check_overlaps(key, spans[key])


def _was_denied_to_the_end(evidence: Evidence, machine: SimulatedMachine) -> bool:
    """Tell whether the cloud said that there was nothing at all, until it had removed the machine.

    By all that can be asked it was not there, so no ledger can know of it; the bill says otherwise.
    """
    lists = sorted(evidence.tables.lists.items())
    removed = next((turn.at for turn in machine.turns if turn.status == "toRemove"), None)
    if removed is None:
        return False
    is_denied = False
    for _, it in lists:
        at = evidence.origin_s + evidence.list_ends_s[it.finished_at]
        if at >= removed:
            break
        if it.believable and at > max(machine.created_at, machine.unlisted_until):
            is_denied = it.machines == 0
    return is_denied


def _metered_since(evidence: Evidence, spans: list[CostSpan]) -> float:
    """Return since when a machine is metered, in the world's time.

    What was there before we began to look has its begin at that very moment, and is ours to count from there.
    """
    first = min(spans, key=lambda it: it.id, default=None)
    ends = evidence.list_ends_s
    if first is not None and first.began.lo == first.began.hi:
        # Where the clock was set in the middle of a list, its end was read a moment later.
        return evidence.origin_s + _list_end_s(ends, first.began.lo)
    lists = [it for _, it in sorted(evidence.tables.lists.items()) if it.believable]
    # By the time that has passed: by a clock that was set back, an earlier list seems later.
    if first is not None and not any(
        ends[it.finished_at] <= _list_end_s(ends, first.began.hi) for it in lists
    ):
        # A list that proves nothing has shown it all the same, and was the first that anybody saw of it.
        return evidence.origin_s + _list_end_s(ends, first.began.lo)
    return evidence.origin_s + ends[lists[0].finished_at] if lists else 0.0


def _list_end_s(ends: Mapping[datetime, float], moment: datetime) -> float:
    """Return when the list ended whose end, by our clock, is nearest to a moment."""
    return ends[min(ends, key=lambda it: abs(it - moment))]


def _check_amount(
    evidence: Evidence, key: tuple[str, str], spans: list[CostSpan], charged: Fraction
) -> Iterator[Violation]:
    now = evidence.ended_at
    assert now is not None
    if any(_awaits_price(evidence, it) for it in spans):
        return
    counted = sum(it.cost(now) for it in spans)
    stated = sum(it.uncertainty() + ROUNDING_NANO for it in spans)
    for it in spans:
        if it.ended is None:
            # Nobody can have told us what has happened since the last list.
            stated += doubt_nano(it.rate.nano_usd, _unseen(evidence, it))
    if spans:
        first = min(spans, key=lambda it: it.id)
        stated += doubt_nano(first.rate.nano_usd, _stamp_error(evidence, first))
    billed = charged * NANO
    if abs(counted - billed) > stated:
        known = evidence.world.machines.get(key[0])
        name = "nothing" if known is None else known.name
        told = f"{counted / NANO:.6f} +- {stated / NANO:.6f}, the bill {float(charged):.6f}"
        yield Violation("I15 costs", f"{key[1]} of {name} {key[0]}: the ledger says {told} USD")


def _awaits_price(evidence: Evidence, span: CostSpan) -> bool:
    """Tell whether a machine has begun to cost with the very last list: its price comes with the next one."""
    last = max(evidence.tables.lists.values(), key=lambda it: it.id, default=None)
    is_unpriced = span.ended is None and span.rate.source is PriceSource.UNKNOWN
    return is_unpriced and last is not None and span.began.hi == last.finished_at


def _stamp_error(evidence: Evidence, first: CostSpan) -> timedelta:
    """Return by how much the cloud's clock may mislead about when a machine of others began.

    Where only lists came before that nobody vouches for, and that did not show it, its stamp is all there is;
    how far our own clock was off the cloud's then nobody can know.
    """
    if first.cloud_id not in evidence.decoys or first.began.lo == first.began.hi:
        return timedelta(0)
    ends = evidence.list_ends_s
    opened_s = _list_end_s(ends, first.began.hi)
    earlier = [it for it in evidence.tables.lists.values() if ends[it.finished_at] < opened_s]
    if any(it.believable and it.witness is Witness.SEEN for it in earlier):
        return timedelta(0)
    return timedelta(seconds=abs(sum(seconds for at_s, seconds in evidence.jumps if at_s < opened_s)))


def _unseen(evidence: Evidence, span: CostSpan) -> timedelta:
    assert evidence.ended_at is not None
    if span.sure_until is not None or span.began_by == UNCLEAR:
        return evidence.ended_at - (span.sure_until or span.began.lo)
    believable = [it for it in evidence.tables.lists.values() if it.believable]
    last = max(believable, key=lambda it: it.id, default=None)
    return timedelta(0) if last is None else abs(evidence.ended_at - last.started_at)


def _check_overlaps(key: tuple[str, str], spans: list[CostSpan]) -> Iterator[Violation]:
    """No second of a machine is in two spans."""
    # Those of no length only state a doubt.
    lasting = [it for it in spans if it.ended is None or it.time(it.ended.hi)]
    in_order = sorted(lasting, key=lambda it: it.id)
    for one, two in pairwise(in_order):
        if one.ended is None or (
            one.time(one.ended.hi) and one.ended.mid > two.began.mid + timedelta(seconds=1)
        ):
            yield Violation("I15 costs", f"{key[1]} of {key[0]} is counted twice: {one} and {two}")
