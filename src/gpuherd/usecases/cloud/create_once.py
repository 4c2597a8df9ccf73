"""A create that the cloud knows no tag for, sent once or not at all: a network volume.

The intent is durable before the call and bars every other while it is there. Who has written one looks once
more before sending: since the first look another may have been made, and its intent forgotten. When no answer
comes, a witness is looked for, something that only this create can have made. While there is none the outcome
stays unknown, and the same is not sent again before it could no longer appear.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    Conflict,
    GpuherdError,
    OutcomeUnknown,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.replica_port import Flags

# Not later after the intent was written: by then another may have decided otherwise.
SEND_WITHIN_S = 10.0


@dataclass(frozen=True)
class OnceWords:
    """How that which is made is called, how to ask for it again, and the codes of what may be in the way."""

    thing: str
    again: str
    in_progress_code: str
    unknown_code: str


@dataclass(frozen=True)
class Intent:
    """A create that is about to be sent, and under which flag that is written down."""

    flag: str
    # What the flag says now, None if nothing.
    stored: str | None
    text: str
    audit_record: AuditRecord


@dataclass(frozen=True)
class CreateOnce:
    """Sends such creates, all of one kind."""

    words: OnceWords
    flags: Flags
    clock: Clock
    settling: SettlingPolicy

    async def __call__(
        self,
        intent: Intent,
        check_absent: Callable[[], Awaitable[None]],
        send: Callable[[float], Awaitable[str]],
        find_witness: Callable[[], Awaitable[str | None]],
    ) -> str:
        """Send it, not after the time that `send` is given, and return the id of what was made.

        `check_absent` looks whether it is there already, and raises if so.
        """
        # guard: the intent of a volume is durable before the call
        if not await self.flags.swap(intent.flag, intent.stored, intent.text, intent.audit_record):
            raise Conflict(
                f"another create of this {self.words.thing} is under way",
                code=self.words.in_progress_code,
            )
        send_by_s = self.clock.boottime() + SEND_WITHIN_S
        # guard: a volume is looked for once more when no other may begin
        await self._look_again(intent, check_absent)
        try:
            made = await send(send_by_s)
        except OutcomeUnknown as unknown:
            try:
                witness = await find_witness()
            except CloudError:
                witness = None
            if witness is None:
                # guard: an answer that was lost is no proof that a volume was not made
                raise self._not_known(self.settling.settle_without_witness.total_seconds()) from unknown
            made = witness
        except GpuherdError:
            # Surely not made.
            await self.forget(intent.flag, intent.text)
            raise
        await self.forget(intent.flag, intent.text)
        return made

    async def _look_again(self, intent: Intent, check_absent: Callable[[], Awaitable[None]]) -> None:
        """Refuse what was made between the first look and this intent: its own intent is gone by now."""
        try:
            await check_absent()
        except GpuherdError:
            # Nothing was sent.
            await self.forget(intent.flag, intent.text)
            raise

    async def forget(self, flag: str, stored: str | None) -> None:
        """Forget an intent whose outcome is known."""
        await self.flags.swap(flag, stored, None)

    def check_settled(self, sent_at: datetime) -> None:
        """Refuse while what was sent then may still appear.

        A wall clock that was set back makes it wait longer, never shorter.
        """
        left = sent_at + self.settling.settle_without_witness - self.clock.now()
        if left.total_seconds() > 0:
            raise self._not_known(left.total_seconds())

    def _not_known(self, left_s: float) -> CloudUnavailable:
        return CloudUnavailable(
            f"no answer came to the create of this {self.words.thing}, and it is not listed yet; ask again "
            f"with the same {self.words.again}: it is looked for first, and never made twice",
            code=self.words.unknown_code,
            retry_after_s=min(30.0, math.ceil(left_s)),
        )
