"""Bind: write down that a machine belongs to an instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.clock import Clock
from gpuherd.domain.endings.lease_term import rented_term
from gpuherd.domain.errors import StaleWrite, StoreUnavailable
from gpuherd.domain.instance import events
from gpuherd.domain.instance.attempt import Attempt, AttemptState
from gpuherd.domain.instance.instance import Goal, Instance, Rental
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.capacity.line import CapacityLine
from gpuherd.usecases.events.record import EventRecorder, NewEvent


@dataclass(frozen=True, kw_only=True)
class BindMachine:
    """Gives an instance the machine that one of its create calls has made."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    clock: Clock
    # How far ahead the end of a lease is announced.
    lease_warning: timedelta
    line: CapacityLine
    # Wakes whoever is the next in line.
    wake_heads: Callable[[], Awaitable[object]]
    # How long a boot may take.
    max_wait: timedelta

    async def __call__(
        self,
        leased: LeasedInstance,
        attempt: Attempt,
        cloud_id: str,
        reason: str,
        *new_events: NewEvent,
        made_at: datetime | None = None,
    ) -> LeasedInstance:
        """Write down that this machine is ours, in one transaction with everything that follows from it."""
        rental = Rental(
            product_id=attempt.product_id,
            product_name=attempt.product_name,
            region=attempt.region,
            cluster_id=attempt.cluster_id,
            gpu_hourly_usd=attempt.gpu_hourly_usd,
            image_url=attempt.image_url,
            billing_mode=attempt.billing_mode,
        )
        bound = replace(attempt, state=AttemptState.BOUND, cloud_id=cloud_id, closed_at=self.clock.now())

        def with_machine(it: Instance) -> Instance:
            it = replace(self.with_lease(it), cloud_id=cloud_id, machine_made_at=made_at, rental=rental)
            it = it if it.line_since is None else replace(it, line_since=None)
            if it.chain is not None and it.chain.replaces is not None:
                # An heir may wait for capacity for days, but what is rented must come up, or another does.
                it = replace(it, deadline=min(it.deadline, self.clock.now() + self.max_wait))
            return replace(it, reason=reason, waiting_for=None) if it.goal is Goal.RUNNING else it

        granted = () if leased.instance.line_since is None else (_granted(leased.instance, attempt),)
        leased = await self.save_outcome(leased, with_machine, *new_events, *granted, attempt=bound)
        if not self.line.is_quiet or granted:
            await self._leave_line(leased.instance, attempt)
        return leased

    async def _leave_line(self, it: Instance, attempt: Attempt) -> None:
        """Let the next one try: where one machine was, there may be more."""
        self.line.note(it)
        # The machine is on record; that others hear of it a little later does no harm.
        with suppress(StoreUnavailable):
            await self.line.note_rental(attempt.offer_key)
            await self.wake_heads()

    def with_lease(self, it: Instance) -> Instance:
        """Return an instance that has a machine now: it costs money from here on, so its lease counts."""
        term = rented_term(it.terms.lease, it.lease_term, self.clock.now(), self.lease_warning)
        return it if term is it.lease_term else replace(it, lease_term=term)

    async def save_outcome(
        self,
        leased: LeasedInstance,
        change: Callable[[Instance], Instance],
        *new_events: NewEvent,
        attempt: Attempt | None,
    ) -> LeasedInstance:
        """Write down how a call went, whatever the user has come to want while it was under way."""
        while True:
            try:
                noted = self.event_recorder.change(change(leased.instance), *new_events, attempt=attempt)
                return await self.instance_leases.save(leased, noted)
            except StaleWrite:
                # Raises if the lease is gone; else only the goal has changed, and this still holds.
                leased = await self.instance_leases.refresh(leased)


def _granted(it: Instance, attempt: Attempt) -> NewEvent:
    """Return that a wait for capacity has come to its end."""
    details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
    return NewEvent(events.GRANTED, f"got {attempt.product_name} in {attempt.region} after a wait", details)
