"""When nothing may be rented: wrong account, vanished machines, a second database, a person's block."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.domain.api_key import Caller
from gpuherd.domain.blast_limit import newly_lost, unlisted, vanishing_brake
from gpuherd.domain.cloud.account_identity import account_flag
from gpuherd.domain.cloud.machine import Listing, Machine
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy
from gpuherd.domain.cloud.orphan import is_made_by_another
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.observation_port import Observations
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.service.leader_election import StoreHistory
from gpuherd.usecases.services import Services

log = structlog.get_logger()


# What is not confirmed, by the process that waits for it.
ACCOUNT_UNCONFIRMED = "account_unconfirmed"


REPORT_INTERVAL = timedelta(seconds=10)


# A process that does not report for so long has ended; its key is nobody's concern any more.
REPORT_TIMEOUT = timedelta(seconds=60)


UNCONFIRMED_WORDS = (
    "NOVITA_API_KEY was never used with this database, and no machine that it knows is on the key's account: "
    "nothing is rented, and nothing is believed lost. Set the key of the right account; if this is the right "
    "one: gpuherd cloud confirm-account"
)


@dataclass(kw_only=True)
class AccountGuard:
    """Knows whether the account of this process is the one that the database belongs to."""

    flags: Flags
    observations: Observations
    clock: Clock
    # What is stored of the key.
    account: str = ""
    confirmed: bool = True
    # Whether a list has shown no machine that we know; before the first list there is nothing to tell.
    in_doubt: bool = field(default=False, init=False)
    _reported_at: datetime | None = field(default=None, init=False)

    async def is_confirmed(self) -> bool:
        """Return True if the account is known to be ours; another replica or an admin may have found out."""
        if not self.confirmed and await self.flags.get(account_flag(self.account)) is not None:
            self._note_confirmed()
        return self.confirmed

    async def examine(self, listing: Listing) -> bool:
        """Return True if a list is of our account."""
        if await self.is_confirmed():
            return True
        if not await self.observations.knows_any(listing.machines):
            self.in_doubt = True
            await self._report()
            return False
        await self.flags.put(
            account_flag(self.account), f"{self.clock.now().isoformat()} a known machine is listed"
        )
        await self.flags.put(ACCOUNT_UNCONFIRMED, None)
        log.info("account.confirmed", by="a known machine is listed")
        self._note_confirmed()
        return True

    async def renew_report(self) -> None:
        """Show that this process still waits, however seldom it lists."""
        if self.in_doubt and not await self.is_confirmed():
            await self._report()

    async def unconfirmed(self) -> str | None:
        """Say what is wrong with the account of some live process, None if nothing is."""
        return UNCONFIRMED_WORDS if await self._reported() is not None else None

    async def confirm(self, caller: Caller) -> None:
        """Take the word of an admin that the account is the right one."""
        account, now = await self._reported(), self.clock.now()
        audit_record = caller.audit_record("cloud.confirm_account", "cloud", now, account or "")
        if account is not None:
            await self.flags.put(account_flag(account), f"{now.isoformat()} {caller.key_id}")
        await self.flags.put(ACCOUNT_UNCONFIRMED, None, audit_record)

    def _note_confirmed(self) -> None:
        self.confirmed, self.in_doubt = True, False

    async def _report(self) -> None:
        now = self.clock.now()
        if self._reported_at is not None and abs(now - self._reported_at) < REPORT_INTERVAL:
            return
        if self._reported_at is None:
            log.error("account.unconfirmed", reason=UNCONFIRMED_WORDS)
        self._reported_at = now
        report = json.dumps({"account": self.account, "at": now.isoformat()})
        await self.flags.put(ACCOUNT_UNCONFIRMED, report)

    async def _reported(self) -> str | None:
        text = await self.flags.get(ACCOUNT_UNCONFIRMED)
        if text is None:
            return None
        report = json.loads(text)
        fresh = self.clock.now() - datetime.fromisoformat(report["at"]) < REPORT_TIMEOUT
        return str(report["account"]) if fresh else None


# The reason why no loss is believed.
VANISHING_HELD = "vanishing_held"


# When a user last confirmed that the missing machines are gone.
LOSS_CONFIRMED_AT = "loss_confirmed_at"


# When the last losses were believed, and how many. Stored, because another replica may make the next list.
LOSSES_BELIEVED = "losses_believed"


@dataclass(frozen=True, kw_only=True)
class VanishingBrake:
    """Judges each list before it is saved. The flag only informs users: the next list is judged again."""

    flags: Flags
    observations: Observations
    clock: Clock
    settling: SettlingPolicy

    async def holds(
        self, changed: Sequence[ObservedMachine], known: Mapping[str, ObservedMachine], listing: Listing
    ) -> bool:
        """Return True if a list lacks too many known machines to be believed."""
        reason = await self._reason(changed, known, listing)
        # Asked each time: another replica may have looked since, or an older database been put back.
        was_held = await self.held() is not None
        if reason is not None and not was_held:
            log.error("observer.vanishing_held", reason=reason)
            await self.flags.put(VANISHING_HELD, reason)
        elif reason is None and was_held:
            log.info("observer.vanishing_released")
            await self.flags.put(VANISHING_HELD, None)
        return reason is not None

    async def held(self) -> str | None:
        """Say why no loss is believed, None if it is."""
        return await self.flags.get(VANISHING_HELD)

    async def confirm(self, caller: Caller) -> None:
        """Take the word of an admin that what is missing now is gone."""
        now = self.clock.now()
        audit_record = caller.audit_record("cloud.confirm_loss", "cloud", now, await self.held() or "")
        await self.flags.put(LOSS_CONFIRMED_AT, now.isoformat(), audit_record)

    async def _reason(
        self, changed: Sequence[ObservedMachine], known: Mapping[str, ObservedMachine], listing: Listing
    ) -> str | None:
        if not newly_lost(changed, None):
            return None
        text = await self.flags.get(LOSS_CONFIRMED_AT)
        confirmed_at = None if text is None else datetime.fromisoformat(text)
        lost, now = await self.observations.bound_to(newly_lost(changed, confirmed_at)), self.clock.now()
        if not lost.lost:
            return None
        listed = {it.cloud_id for it in listing.machines}
        # guard: what one list lacks is judged together
        missing = await self.observations.bound_to(unlisted(known, listed, confirmed_at))
        # guard: losses that another replica has just believed count for the brake
        lately = await self._believed_lately(now)
        reason = vanishing_brake(missing.lost, sum(n for _, n in lately), missing.instances)
        if reason is None:
            believed = [*lately, (now.timestamp(), lost.lost)]
            await self.flags.put(LOSSES_BELIEVED, json.dumps(believed))
        return reason

    async def _believed_lately(self, now: datetime) -> list[tuple[float, int]]:
        """Return when how many losses were believed within the last cycle, by whichever replica."""
        cycle_s = self.settling.collection_cycle.total_seconds()
        kept = json.loads(await self.flags.get(LOSSES_BELIEVED) or "[]")
        return [(at, n) for at, n in kept if abs(now.timestamp() - at) < cycle_s]


# The flag that says why nothing is rented or removed.
INSTALLATION_SHARED = "installation_shared"


# When somebody has last looked: what was made before is no news.
SHARING_CLEARED_AT = "installation_shared_cleared_at"


@dataclass(frozen=True, kw_only=True)
class InstallationAlarm:
    """Raised by the first machine that another database must have made; lowered by a person."""

    flags: Flags
    installation: str
    # When this process began: of create calls before that an old copy of the database may know nothing.
    begun_at: datetime
    history: StoreHistory
    settling: SettlingPolicy

    async def reason(self) -> str | None:
        """Return why the alarm is up, None if it is not."""
        return await self.flags.get(INSTALLATION_SHARED)

    async def is_proof(self, machine: Machine, attempts: Iterable[Attempt]) -> bool:
        """Return True if a machine proves it, given the create calls of the instance that its tag names."""
        if not is_made_by_another(machine, attempts, self.installation, self._complete_since()):
            return False
        cleared = await self.flags.get(SHARING_CLEARED_AT)
        return cleared is None or is_made_by_another(
            machine, attempts, self.installation, datetime.fromisoformat(cleared)
        )

    def _complete_since(self) -> datetime:
        """Return since when every create call under our id is in this database, if it is the only one."""
        lost_at = self.history.lost_at
        # A call that the store has lost may take effect for as long as one of unknown outcome.
        return self.begun_at if lost_at is None else max(self.begun_at, lost_at + self.settling.settle)

    async def raise_for(self, machine: Machine) -> str:
        """Raise the alarm, and return its reason."""
        reason = (
            f"machine {machine.cloud_id} was made under our installation id ({self.installation}), but not "
            "by this database: a copy of it seems to run beside it. Nothing is rented or removed by itself. "
            "Stop the other one for good, look at `gpuherd orphans`, then `gpuherd creates resume`"
        )
        if await self.reason() is None:
            await self.flags.put(INSTALLATION_SHARED, reason)
            log.error("installation.shared", cloud_id=machine.cloud_id, installation=self.installation)
        return reason


# The flag that says why no machine may be rented.
CREATES_BLOCKED = "creates_blocked"


async def creates_blocked(services: Services) -> str | None:
    """Return why no machine may be rented, None if creates are allowed.

    A lost tag or a second user of our installation id blocks all creates until a person has looked.
    """
    return await services.stores.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED)


async def resume_creates(services: Services, caller: Caller) -> None:
    """Allow creates again, and the collector if the same alarm has stopped it."""
    flags = services.stores.flags
    now, blocked = services.clock.now(), await creates_blocked(services)
    if await flags.get(INSTALLATION_SHARED) is not None:
        # First, or the machine that raised the alarm would raise it again.
        await flags.put(SHARING_CLEARED_AT, now.isoformat())
        await flags.put(INSTALLATION_SHARED, None)
    audit_record = caller.audit_record("creates.resume", "creates", now, blocked or "")
    await flags.put(CREATES_BLOCKED, None, audit_record)
