"""The account: whether the key in use is of the account that this database belongs to.

A key that was never seen here may be a new key of the same account, or the key of somebody else's. Until one
machine that we know is listed with it, or an admin says so, no absence is believed and nothing is done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.identity import account_flag
from gpuherd.domain.cloud.machine import Listing
from gpuherd.ports.flags import Flags
from gpuherd.ports.observations import Observations

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
        """Tell whether the account is known to be ours; another replica or an admin may have found out."""
        if not self.confirmed and await self.flags.get(account_flag(self.account)) is not None:
            self._note_confirmed()
        return self.confirmed

    async def examine(self, listing: Listing) -> bool:
        """Tell whether a list is of our account."""
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
