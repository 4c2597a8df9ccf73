"""Everything that can go wrong, named for what the caller can do about it.

GpuherdError
├── InvalidRequest · NotFound · Conflict     the user can fix it
│   ├── SecretUnreadable                     it was sealed with another key: put that key back
│   └── SecretsKeyMissing                    nothing can be sealed: an operator must set the key
├── ClaimMismatch                            the same Idempotency-Key was used for another request
├── QuotaExceeded                            the key's limit is reached: end something first
│   └── BudgetExhausted                      a budget has no money left for it: ask for less, or raise it
├── NoCapacity                               no offer is left: wait, or wish for something else
├── StoreUnavailable                         our own memory cannot be written now: try again
│   └── StoreOutcomeUnknown                  it may have been written: look before trying again
├── MachineHeld                              another instance still counts on that machine: look again soon
├── StaleWrite                               a concurrent write came first: read again
│   └── LeadershipLost                       another replica is the leader now
└── CloudError
    ├── CloudUnavailable                     surely nothing happened: try again later
    │   ├── CircuitOpen · RateLimited        we did not even ask, or were told to wait
    │   └── CloudTimeout                     a read that took too long
    ├── OutcomeUnknown                       it may have happened: look before trying again
    ├── MachineGone                          the cloud says that it has no such machine
    ├── OutOfStock                           not here, not now: try the next offer
    └── CloudRefused                         it will never work like this: show it to a person
        └── KeyRefused                       the Novita key itself is not accepted
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class GpuherdError(Exception):
    """The root: a code for programs, a sentence for people, details for both."""

    code = "INTERNAL_ERROR"

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details: Mapping[str, Any] = details or {}


@dataclass(frozen=True)
class FieldProblem:
    """One thing that is wrong with one field of a request."""

    field: str
    code: str
    message: str


class InvalidRequest(GpuherdError):
    """What was asked makes no sense; nothing was done."""

    code = "VALIDATION_ERROR"

    def __init__(self, problems: Sequence[FieldProblem]):
        code = problems[0].code if len(problems) == 1 else self.code
        super().__init__("; ".join(p.message for p in problems), code=code)
        self.problems = tuple(problems)


class NotFound(GpuherdError):
    """There is no such thing."""

    code = "NOT_FOUND"


class Conflict(GpuherdError):
    """It exists, but not in a state in which this can be done."""

    code = "CONFLICT"


class SecretUnreadable(Conflict):
    """A value was sealed with another key, or changed since: it cannot be given to a machine."""

    code = "SECRET_UNREADABLE"


class SecretsKeyMissing(Conflict):
    """There is no key to keep values with; without one they would be in the database for all to read."""

    code = "SECRETS_KEY_MISSING"

    def __init__(self) -> None:
        super().__init__(
            "the values of variables cannot be kept: this server has no GPUHERD_SECRETS_KEY, which all "
            "replicas on one database must share (make one with: openssl rand -base64 32)"
        )


class IdempotencyKeyReused(GpuherdError):
    """One Idempotency-Key, two different requests: one of them is a mistake."""

    code = "IDEMPOTENCY_KEY_REUSED"


class QuotaExceeded(GpuherdError):
    """The key may not use more than it does; details say what is used and what is allowed."""

    code = "QUOTA_EXCEEDED"


class BudgetExhausted(QuotaExceeded):
    """A budget does not hold this, too; details say what is spent of it and what would be allowed."""

    code = "BUDGET_EXHAUSTED"


class NoCapacity(GpuherdError):
    """No offer that fits the wish is available; details say why for each."""

    code = "NO_OPTIMAL_PRODUCT_ANY_REGION"


class StoreUnavailable(GpuherdError):
    """The database could not be read or written; nothing was changed."""

    code = "STORE_UNAVAILABLE"


class StoreOutcomeUnknown(StoreUnavailable):
    """The database was lost at the commit: all of it was written, or nothing. Look before repeating it."""

    code = "STORE_OUTCOME_UNKNOWN"


class MachineHeld(GpuherdError):
    """A machine was to be bound under an id that another instance has, whose own is not proven to be gone."""


class StaleWrite(GpuherdError):
    """The row has changed since it was read, or the lease on it is lost."""

    code = "STALE_WRITE"


class LeadershipLost(StaleWrite):
    """The write belongs to the leader, and another replica is the leader now.

    Its fencing token is out of date.
    """

    code = "DUTY_LOST"


class CloudError(GpuherdError):
    """Novita, or the way to it, said no or said nothing."""

    code = "CLOUD_ERROR"


class CloudUnavailable(CloudError):
    """The call surely had no effect; the same call may work later."""

    code = "NETWORK_ERROR"

    def __init__(self, message: str, *, retry_after_s: float | None = None, code: str | None = None):
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class CircuitOpen(CloudUnavailable):
    """Too many calls failed lately, so this one was not made."""

    code = "CIRCUIT_BREAKER_OPEN"


class RateLimited(CloudUnavailable):
    """The cloud, or our own limit, wants us to slow down."""

    code = "RATE_LIMIT_EXCEEDED"


class CloudTimeout(CloudUnavailable):
    """A call that is safe to repeat got no answer in time."""

    code = "REQUEST_TIMEOUT"


class OutcomeUnknown(CloudError):
    """The call may or may not have had its effect. Never repeat it: look first."""

    code = "OUTCOME_UNKNOWN"


class MachineGone(CloudError):
    """The cloud does not know this machine (any more)."""

    code = "MACHINE_NOT_FOUND"


class OutOfStock(CloudError):
    """This offer cannot be had now; another one might."""

    code = "RESOURCE_CONSTRAINTS"


class CloudRefused(CloudError):
    """The cloud understood the call and refuses it for good."""

    code = "CLOUD_REFUSED"


class KeyRefused(CloudRefused):
    """The Novita API key is missing, wrong or revoked."""

    code = "AUTHENTICATION_FAILED"
