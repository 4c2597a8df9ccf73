"""Which cloud and which account a database belongs to.

The contents of a database are valid for one account only. On another account its machines are missing, and
its orders rent machines that no user wants.
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
    """A cloud: the simulator, or the API at an address.

    The simulator has no address: its machines live in a file beside the database, and its port changes at
    each start.
    """

    simulated: bool
    base_url: str = ""

    @property
    def words(self) -> str:
        return "the simulator" if self.simulated else self.base_url


SIMULATOR = CloudIdentity(simulated=True)


class CloudClaim(StrEnum):
    """The result of starting a database with a cloud."""

    # The database belongs to this cloud.
    MATCHES = "matches"
    # The database belongs to no cloud, or holds nothing. From now on it belongs to this cloud.
    TAKES = "takes"
    # The database belongs to another cloud and holds records of it.
    REFUSED = "refused"


def judge_claim(stored: CloudIdentity | None, asked: CloudIdentity, *, holds_records: bool) -> CloudClaim:
    """Decide whether a database may be used with the cloud `asked`."""
    if stored == asked:
        return CloudClaim.MATCHES
    if stored is None or not holds_records:
        return CloudClaim.TAKES
    # guard: a database belongs to one cloud
    return CloudClaim.REFUSED


def refusal_words(stored: CloudIdentity, asked: CloudIdentity, where: str) -> str:
    """Return what the database belongs to, what was requested, and how to fix it."""
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
    """Return a digest of an account's key. It recognizes the key and does not reveal it."""
    key = api_key.reveal().encode("utf-8", "surrogatepass")
    return hmac.new(salt.encode(), key, hashlib.sha256).hexdigest()[:DIGEST_LENGTH]


def account_flag(account: str) -> str:
    """Return the name under which the database stores that it belongs to this account."""
    return f"cloud_account:{account}"
