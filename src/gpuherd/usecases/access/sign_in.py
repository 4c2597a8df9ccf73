"""Sessions of the dashboard: a signed token in a cookie that stands for a key, for half a day at most.

A session is stored only when its user signs out. The signing key is derived from the admin key: it is the
same in every replica, it is not in the database, and a new admin key ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.secret import Secret
from gpuherd.ports.access_port import RevokedSessions
from gpuherd.ports.clock_port import Clock, Ids

SESSION_LIFETIME = timedelta(hours=12)


# A person may remember the admin key, so a user with a session could try to guess it.
STRETCHING_ROUNDS = 200_000


STRETCHING_SALT = b"gpuherd dashboard sessions"
TOKEN_MAX_CHARS = 300


_TOKEN = re.compile(
    r"(?P<said>(?P<id>ses_[0-9a-z]{26})\.(?P<key>[0-9a-z]{1,32})\.(?P<until>[0-9]{1,12}))\.(?P<mac>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Session:
    """A sign-in with a key."""

    id: str
    key_id: str
    expires_at: datetime
    # Every form of this session carries this token. Other sites cannot know it.
    form_token: str


class Sessions:
    """Makes, reads and ends sessions."""

    def __init__(
        self, root: Secret, ended: RevokedSessions, clock: Clock, ids: Ids, rounds: int = STRETCHING_ROUNDS
    ):
        self._root = root
        self._ended = ended
        self._clock = clock
        self._ids = ids
        self._rounds = rounds

    def open(self, key_id: str) -> str:
        """Return the token of a new session for the holder of this key."""
        until = int((self._clock.now() + SESSION_LIFETIME).timestamp())
        said = f"{self._ids.new('ses_')}.{key_id}.{until}"
        return f"{said}.{self._mac('session', said)}"

    async def read(self, token: str) -> Session | None:
        """Return the session of a token, or None if it is forged, expired or signed out of.

        `StoreUnavailable` if the store cannot say whether it was signed out of.
        """
        session = self.verified(token)
        return None if session is None or await self._ended.has(session.id) else session

    def verified(self, token: str) -> Session | None:
        """Return the session of a token, also after a sign-out; None if it is forged or expired."""
        match = _TOKEN.fullmatch(token) if len(token) <= TOKEN_MAX_CHARS else None
        if match is None or not hmac.compare_digest(match["mac"], self._mac("session", match["said"])):
            return None
        expires_at = datetime.fromtimestamp(int(match["until"]), UTC)
        if self._clock.now() >= expires_at:
            return None
        return Session(match["id"], match["key"], expires_at, self._mac("form", match["id"]))

    async def end(self, session: Session, audit_record: AuditRecord) -> None:
        """Revoke a session, in every replica."""
        await self._ended.add(session.id, session.expires_at, audit_record)

    @cached_property
    def _key(self) -> bytes:
        raw = self._root.reveal().encode("utf-8", "surrogatepass")
        return hashlib.pbkdf2_hmac("sha256", raw, STRETCHING_SALT, self._rounds)

    def _mac(self, purpose: str, said: str) -> str:
        return hmac.new(self._key, f"{purpose}:{said}".encode(), hashlib.sha256).hexdigest()
