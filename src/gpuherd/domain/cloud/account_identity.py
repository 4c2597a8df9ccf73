"""Which cloud, and which account there, a database belongs to.

What a database remembers is true of one account only: elsewhere its machines are missing, and its wishes are
orders that nobody gave.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum

from gpuherd.domain.secret import Secret

DIGEST_LENGTH = 32


@dataclass(frozen=True)
class CloudIdentity:
    """A cloud: the simulator, or whatever answers at an address.

    The simulator's machines live in a file beside the database and its port is another at each start, so it
    has no address.
    """

    simulated: bool
    base_url: str = ""

    @property
    def words(self) -> str:
        return "the simulator" if self.simulated else self.base_url


SIMULATOR = CloudIdentity(simulated=True)


class CloudClaim(StrEnum):
    """What comes of starting on a database with a cloud."""

    # It belongs to this cloud.
    MATCHES = "matches"
    # It belongs to none, or to another but holds nothing: it belongs to this one from now on.
    TAKES = "takes"
    # It belongs to another, and what it holds is of that one.
    REFUSED = "refused"


def judge_claim(stored: CloudIdentity | None, asked: CloudIdentity, *, holds_records: bool) -> CloudClaim:
    """Return True if a database may be used with the cloud `asked`."""
    if stored == asked:
        return CloudClaim.MATCHES
    if stored is None or not holds_records:
        return CloudClaim.TAKES
    # guard: a database belongs to one cloud
    return CloudClaim.REFUSED


def refusal_words(stored: CloudIdentity, asked: CloudIdentity, where: str) -> str:
    """Say what a database belongs to, what was asked for, and what can be done."""
    begin = f"the database {where} belongs to {stored.words}, and it was to be used with {asked.words}."
    if stored.simulated:
        todo = "Its instances are simulated; give the real cloud a database of its own"
        return f"{begin} {todo} (GPUHERD_DATABASE_URL, or another GPUHERD_DATA_DIR)."
    if asked.simulated:
        todo = "Its machines are real; give the simulator a database of its own"
        return f"{begin} {todo} (leave GPUHERD_DATABASE_URL out, or set another GPUHERD_DATA_DIR)."
    return (
        f"{begin} Set NOVITA_API_BASE_URL back, or use another database. If the same account has moved "
        "there: gpuherd db rebind, then start again."
    )


def account_digest(salt: str, api_key: Secret) -> str:
    """Return what can be stored of an account's key: enough to know it again, not to find it out."""
    key = api_key.reveal().encode("utf-8", "surrogatepass")
    return hmac.new(salt.encode(), key, hashlib.sha256).hexdigest()[:DIGEST_LENGTH]


def account_flag(account: str) -> str:
    """Return under which key it is written that this account is the one that the database belongs to."""
    return f"cloud_account:{account}"
