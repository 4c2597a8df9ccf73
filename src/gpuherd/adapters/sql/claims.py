"""Claims of requests that no instance keeps with itself, in SQL, with what was answered."""

from __future__ import annotations

import json
from datetime import timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.claim_rows import find_claim, is_of
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.doc_parts import dumps
from gpuherd.adapters.sql.schema import claim as table
from gpuherd.clock import Clock
from gpuherd.domain.errors import Conflict
from gpuherd.ports.keys import KeptReply
from gpuherd.ports.store import Claim

# No request is answered for so long: whoever had it has died.
ABANDONED = timedelta(minutes=2)


class SqlClaims:
    """The port `Claims`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def begin(self, claim: Claim) -> KeptReply | None:
        try:
            return await self._database.write(lambda c: self._begin(c, claim))
        except sa.exc.IntegrityError:
            # Another process was faster by a moment; now its claim can be seen.
            return await self._database.write(lambda c: self._begin(c, claim))

    def _begin(self, connection: sa.Connection, claim: Claim) -> KeptReply | None:
        now = self._clock.now()
        row = find_claim(connection, claim)
        if row is None:
            connection.execute(sa.insert(table).values(**vars(claim), created_at=now))
            return None
        if row.reply is not None:
            return KeptReply(**json.loads(row.reply))
        again = sa.update(table).where(is_of(claim), table.c.created_at == row.created_at)
        if row.created_at > now - ABANDONED or not connection.execute(again.values(created_at=now)).rowcount:
            raise Conflict(
                "the first request with this Idempotency-Key is still being answered",
                code="IDEMPOTENCY_KEY_IN_USE",
            )
        return None

    async def finish(self, claim: Claim, reply: KeptReply) -> None:
        text = dumps({"status": reply.status, "headers": dict(reply.headers), "body": reply.body})
        kept = sa.update(table).where(is_of(claim)).values(reply=text)
        await self._database.write(lambda c: c.execute(kept).rowcount)

    async def release(self, claim: Claim) -> None:
        given_up = sa.delete(table).where(is_of(claim), table.c.reply.is_(None))
        await self._database.write(lambda c: c.execute(given_up).rowcount)
