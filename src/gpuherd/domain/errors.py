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
    """The root of all errors: a code for programs, a sentence for people, details for both."""

    code = "INTERNAL_ERROR"

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details: Mapping[str, Any] = details or {}


@dataclass(frozen=True)
class FieldProblem:
    """One problem with one field of a request."""

    field: str
    code: str
    message: str


class InvalidRequest(GpuherdError):
    """The request is invalid. Nothing was done."""

    code = "VALIDATION_ERROR"

    def __init__(self, problems: Sequence[FieldProblem]):
        code = problems[0].code if len(problems) == 1 else self.code
        super().__init__("; ".join(p.message for p in problems), code=code)
        self.problems = tuple(problems)


class NotFound(GpuherdError):
    """The resource does not exist."""

    code = "NOT_FOUND"


class Conflict(GpuherdError):
    """The resource is not in a state that allows this."""

    code = "CONFLICT"


class SecretUnreadable(Conflict):
    """A value was sealed with another key, or was changed. It cannot be given to a machine."""

    code = "SECRET_UNREADABLE"


class SecretsKeyMissing(Conflict):
    """No key to seal values is configured. Without it, values would be readable in the database."""

    code = "SECRETS_KEY_MISSING"

    def __init__(self) -> None:
        super().__init__(
            "the values of variables cannot be kept: this server has no GPUHERD_SECRETS_KEY, which all "
            "replicas on one database must share (make one with: openssl rand -base64 32)"
        )


class IdempotencyKeyReused(GpuherdError):
    """The same Idempotency-Key was used for two different requests."""

    code = "IDEMPOTENCY_KEY_REUSED"


class QuotaExceeded(GpuherdError):
    """The limit of the key is reached. Details say what is used and what is allowed."""

    code = "QUOTA_EXCEEDED"


class BudgetExhausted(QuotaExceeded):
    """A budget does not allow this. Details say what is spent and what would be allowed."""

    code = "BUDGET_EXHAUSTED"


class NoCapacity(GpuherdError):
    """No offer that fits the launch spec is available. Details give the reason for each."""

    code = "NO_OPTIMAL_PRODUCT_ANY_REGION"


class StoreUnavailable(GpuherdError):
    """The database could not be read or written. Nothing was changed."""

    code = "STORE_UNAVAILABLE"


class StoreOutcomeUnknown(StoreUnavailable):
    """The connection was lost at the commit: all of it was written, or nothing. Check before repeating."""

    code = "STORE_OUTCOME_UNKNOWN"


class MachineHeld(GpuherdError):
    """Another instance has this machine id, and its own machine is not proven to be gone."""


class StaleWrite(GpuherdError):
    """The row changed since it was read, or its lease is lost."""

    code = "STALE_WRITE"


class LeadershipLost(StaleWrite):
    """Another replica is the leader now, so the write is rejected.

    The fencing token of the writer is out of date.
    """

    code = "DUTY_LOST"


class CloudError(GpuherdError):
    """Novita, or the connection to it, failed or refused."""

    code = "CLOUD_ERROR"


class CloudUnavailable(CloudError):
    """The call certainly had no effect. The same call may work later."""

    code = "NETWORK_ERROR"

    def __init__(self, message: str, *, retry_after_s: float | None = None, code: str | None = None):
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class CircuitOpen(CloudUnavailable):
    """Too many calls failed recently, so this call was not made."""

    code = "CIRCUIT_BREAKER_OPEN"


class RateLimited(CloudUnavailable):
    """The cloud, or our own limit, requires a slower pace."""

    code = "RATE_LIMIT_EXCEEDED"


class CloudTimeout(CloudUnavailable):
    """A call that is safe to repeat got no answer in time."""

    code = "REQUEST_TIMEOUT"


class OutcomeUnknown(CloudError):
    """The call may have had its effect, or not. Never repeat it; check first."""

    code = "OUTCOME_UNKNOWN"


class MachineGone(CloudError):
    """The cloud does not know this machine, or no longer."""

    code = "MACHINE_NOT_FOUND"


class OutOfStock(CloudError):
    """This offer is sold out now; another offer may be available."""

    code = "RESOURCE_CONSTRAINTS"


class CloudRefused(CloudError):
    """The cloud understood the call and rejects it permanently."""

    code = "CLOUD_REFUSED"


class KeyRefused(CloudRefused):
    """The Novita API key is missing, wrong or revoked."""

    code = "AUTHENTICATION_FAILED"
