"""Records what the cloud says about a reclaim: that it takes a spot machine back, when, or not after all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.contract.codec.values import iso
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.cloud.spot_reclaim import ReclaimNotice, read_notice
from gpuherd.domain.instance import events
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.capacity.line import CapacityLine
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.succession.notice_lengths import NoticeLengths


@dataclass(frozen=True)
class RecordReclaim:
    """Writes notices down. It calls nobody: the cloud does what it has announced."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    # So long after its notice a spot machine is taken back, where the cloud does not say when; and what was
    # seen of that.
    notices: NoticeLengths
    line: CapacityLine | None = None

    async def announce(self, leased: LeasedInstance) -> LeasedInstance:
        """Tell that the machine will be taken back, and when."""
        seen = next(it for it in leased.observations if it.machine.cloud_id == leased.instance.cloud_id)
        notice = read_notice(seen.machine.spot_reclaim_at, seen.changed_at, self.notices.promised)
        warned = _warned(leased.instance, notice)
        details = {
            "spotStatus": seen.machine.spot_status,
            "reclaimAt": iso(seen.machine.spot_reclaim_at),
            "lossExpectedAt": iso(warned.loss_expected_at),
        }
        await self._avoid_place(leased.instance)
        return await self._save(leased, warned, NewEvent(events.RECLAIM_NOTICE, warned.reason, details))

    async def follow(self, leased: LeasedInstance, reclaim_at: datetime | None) -> LeasedInstance:
        """Take over another time, or that none is said any more; nobody is told again."""
        known = leased.instance.reclaim
        assert known is not None, "only what was announced is followed"
        notice = read_notice(reclaim_at, known.seen_at, self.notices.promised)
        return await self._save(leased, _warned(leased.instance, notice))

    async def withdraw(self, leased: LeasedInstance) -> LeasedInstance:
        """Tell that the machine stays after all."""
        reason = "the cloud does not take this spot machine back after all"
        kept = replace(leased.instance, reason=reason, waiting_for=None, reclaim=None)
        return await self._save(leased, kept, NewEvent(events.RECLAIM_WITHDRAWN, reason))

    async def note_loss(self, it: Instance, now: datetime) -> None:
        """Remember how long its notice was, if a list has shown one."""
        if it.reclaim is not None:
            await self.notices.note_loss(now - it.reclaim.seen_at)

    async def _avoid_place(self, it: Instance) -> None:
        """Let others be rented elsewhere first: where one is taken back, others will be."""
        if self.line is not None and it.rental is not None:
            key = OfferKey(it.rental.product_id, it.rental.region, it.billing_mode)
            await self.line.note_reclaim(key)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))


def _warned(it: Instance, notice: ReclaimNotice) -> Instance:
    """Return the instance with a notice, and with the time that is known, or to be expected."""
    at = notice.reclaim_at
    when = f"at {iso(at)}" if at else f"probably at {iso(notice.loss_expected_at)}"
    return replace(
        it, reason=f"the cloud will take this spot machine back {when}", waiting_for=None, reclaim=notice
    )
