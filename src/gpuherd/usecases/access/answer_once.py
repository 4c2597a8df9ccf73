"""Answer once: a repeated request gets the stored reply of the first.

What is done between taking the claim and keeping the reply may be cut off by the end of the process; then the
claim can be taken again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuherd.ports.access import IdempotencyClaim, IdempotencyStore, StoredReply


@dataclass(frozen=True)
class AnswerOnce:
    """For requests that do not keep their claim in a transaction of their own."""

    claims: IdempotencyStore

    async def __call__(
        self, claim: IdempotencyClaim, answer: Callable[[], Awaitable[StoredReply | None]]
    ) -> StoredReply | None:
        """Return the reply that is stored already; else None, once `answer` was asked for one to store.

        It gives None for a reply that a repetition may change, and nothing is stored then.
        """
        if (stored := await self.claims.begin(claim)) is not None:
            return stored
        try:
            reply = await answer()
        except BaseException:
            await self.claims.release(claim)
            raise
        if reply is None:
            await self.claims.release(claim)
        else:
            await self.claims.finish(claim, reply)
        return None
