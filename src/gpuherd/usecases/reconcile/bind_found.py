"""Bind what is there already.

A machine of this instance that came late, or whose create call is not on record, is bound instead of renting
another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.clock import Clock
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy
from gpuherd.domain.cloud.offer import known_mode
from gpuherd.domain.cloud.tag import machine_tag, owner_tag, parse_tag
from gpuherd.domain.instance import events
from gpuherd.domain.instance.attempt import Attempt, AttemptState
from gpuherd.domain.orphans.orphan import LEAVING_PHASES, doubt_about
from gpuherd.ports.instances import LeasedInstance
from gpuherd.usecases.cloud.catalogue import CatalogueCache, price_list
from gpuherd.usecases.cloud.installation_alarm import InstallationAlarm
from gpuherd.usecases.events.record import NewEvent
from gpuherd.usecases.reconcile.bind_machine import BindMachine


@dataclass(frozen=True, kw_only=True)
class BindFoundMachine:
    """Looks for a machine of the instance among what the lists showed, and binds it."""

    bind: BindMachine
    catalogue: CatalogueCache
    alarm: InstallationAlarm
    clock: Clock
    settling: SettlingPolicy
    installation: str
    boot_id: str

    async def __call__(self, leased: LeasedInstance) -> LeasedInstance | None:
        """Return the instance with its machine bound; None if there is none to be had."""
        # guard: a late machine is taken by its own instance
        if late := self._late_machine(leased):
            return await self._bind_late(leased, *late)
        if (found := unrecorded_machines(leased, self.installation)) and not await self._is_shared(
            leased, found
        ):
            return await self._bind_unrecorded(leased, found[0])
        return None

    def _late_machine(self, leased: LeasedInstance) -> tuple[Attempt, Machine] | None:
        """Return a machine that a call of this instance has made after it was given up or refused."""
        closed = {it.tag: it for it in leased.attempts if not it.is_open and it.cloud_id is None}
        for it in sorted(leased.observations, key=by_evidence):
            attempt = closed.get(machine_tag(it.machine) or "")
            if attempt is None or it.missing_since is not None or it.machine.phase in LEAVING_PHASES:
                continue
            if doubt_about(it.machine, attempt, it.first_seen_at, self.settling) is None:
                return attempt, it.machine
        return None

    async def _bind_late(self, leased: LeasedInstance, attempt: Attempt, machine: Machine) -> LeasedInstance:
        new_event = NewEvent(
            events.MACHINE_FOUND,
            "found by its tag after the create call was given up",
            {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id, "late": True},
        )
        return await self.bind(
            leased, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
        )

    async def _is_shared(self, leased: LeasedInstance, found: Sequence[Machine]) -> bool:
        """Tell whether a second database has made one of these machines, or is known to make some."""
        if await self.alarm.reason() is not None:
            return True
        for machine in found:
            # guard: the machine of a second user is not taken
            if await self.alarm.is_proof(machine, leased.attempts):
                await self.alarm.raise_for(machine)
                return True
        return False

    async def _bind_unrecorded(self, leased: LeasedInstance, machine: Machine) -> LeasedInstance:
        """Bind a machine of this instance whose create call our memory has lost, and remember the call."""
        tag = owner_tag(machine)
        assert tag is not None, "only a tagged machine can be forgotten"
        new_event = NewEvent(
            events.MACHINE_FOUND,
            "found by its tag; this database had no record of the create call",
            {"attempt": tag.attempt, "cloudInstanceId": machine.cloud_id},
        )
        reason = "found by its tag, rented before this database was put back"
        price = (await price_list(self.catalogue)).gpu_hourly_usd(machine)
        if price is None:
            return await self.bind.save_outcome(
                leased,
                lambda it: replace(
                    self.bind.with_lease(it), cloud_id=machine.cloud_id, reason=reason, waiting_for=None
                ),
                new_event,
                attempt=None,
            )
        attempt = Attempt(
            instance_id=leased.instance.id,
            n=_free_number(leased, tag.attempt),
            tag=str(tag),
            state=AttemptState.BOUND,
            product_id=machine.product_id,
            product_name=machine.product_name,
            region=machine.region,
            cluster_id=machine.cluster_id,
            gpu_hourly_usd=price,
            sent_at=machine.created_at or self.clock.now(),
            boot_id=self.boot_id,
            image_url=machine.image_url,
            billing_mode=known_mode(machine.billing_mode),
        )
        return await self.bind(
            leased, attempt, machine.cloud_id, reason, new_event, made_at=machine.created_at
        )


def unrecorded_machines(leased: LeasedInstance, installation: str) -> list[Machine]:
    """Return the machines of this instance that are listed, stay, and whose call is not on record.

    The oldest first; those that only their environment speaks for last.
    """
    found = [it for it in leased.observations if _is_unrecorded(it, leased, installation)]
    return [it.machine for it in sorted(found, key=by_evidence)]


def _is_unrecorded(it: ObservedMachine, leased: LeasedInstance, installation: str) -> bool:
    tag = owner_tag(it.machine)
    if tag is None or it.missing_since is not None or it.machine.phase in LEAVING_PHASES:
        return False
    ours = tag.installation == installation and tag.instance_key == leased.instance.key
    return ours and all(attempt.tag != str(tag) for attempt in leased.attempts)


def by_evidence(it: ObservedMachine) -> tuple[bool, datetime]:
    """Sort machines by how likely they are ours: a name is copied as seldom as an environment often."""
    return parse_tag(it.machine.name) is None, it.machine.created_at or it.first_seen_at


def _free_number(leased: LeasedInstance, wanted: int) -> int:
    """Return the number under which a call of another life goes on record beside our own."""
    taken = {it.n for it in leased.attempts}
    return wanted if wanted not in taken else max(taken) + 1
