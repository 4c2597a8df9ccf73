"""The errors of the client, named for what the caller can do about them.

GpuherdError
├── BadConfiguration              no usable address, key or secret: change the settings
├── ConnectionFailed              no answer came: is the server up? did it receive the request?
├── UnexpectedReply               the answer is not from a gpuherd that this client understands
├── ApiError                      the server refuses
│   ├── InvalidRequest            change the request
│   ├── Unauthorized · Forbidden  another key is needed
│   ├── NotFound                  there is no such thing
│   ├── Conflict                  not possible now
│   │   └── NoCapacity            sold out: another product, region or price
│   ├── TooManyRequests           later, or less
│   └── Unavailable               later
├── InstanceFailed                the instance will not become what was waited for
├── WaitTimedOut                  it is not there yet
├── PrewarmFailed                 the cloud could not pull an image ahead of time
├── PrewarmTimedOut               the image is not pulled yet
├── NotReleased                   something may still cost money: look at it
├── SecretLost                    a key or endpoint was made, but its secret was lost on the way
└── WebhookInvalid                do not believe this message
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuherd.contract.catalogue_models import Prewarm
    from gpuherd.contract.instance_models import Instance
    from gpuherd.contract.operation_models import Operation


class GpuherdError(Exception):
    """The base of all errors of this client."""

    # True if the server may have carried out the request in spite of the error.
    may_have_happened = False
    # The same request under this key has no second effect.
    idempotency_key: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # An error must survive pickling (multiprocessing). Its constructor takes more than the message.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[GpuherdError], args: tuple[Any, ...], state: Mapping[str, Any]) -> GpuherdError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class BadConfiguration(GpuherdError):
    """The address, the key or the secret cannot be used."""


class ConnectionFailed(GpuherdError):
    """No answer came. `sent` is True if the server may have received the request."""

    def __init__(self, url: str, reason: str, *, sent: bool) -> None:
        advice = (
            "it may have been obeyed; look before you ask again, or repeat it with the same idempotency_key"
            if sent
            else "is the server running there? `gpuherd serve` starts one, GPUHERD_URL names another"
        )
        super().__init__(f"cannot talk with gpuherd at {url}: {reason}; {advice}")
        self.url = url
        self.reason = reason
        self.sent = sent
        self.may_have_happened = sent


class UnexpectedReply(GpuherdError):
    """The answer is not from gpuherd, or from a version that this client does not understand."""

    may_have_happened = True

    def __init__(self, message: str, *, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class FieldError:
    """One problem of a request."""

    field: str
    code: str
    message: str


class ApiError(GpuherdError):
    """The server refuses."""

    advice = ""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[FieldError, ...] = (),
        request_id: str | None = None,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
        title: str = "",
    ) -> None:
        reasons = "".join(f"; {error.message}" for error in errors if error.message not in detail)
        request = f", request {request_id}" if request_id else ""
        advice = f"; {self.advice}" if self.advice else ""
        super().__init__(f"{detail}{reasons} ({code}, HTTP {status}{request}){advice}")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.errors = errors
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.details: Mapping[str, Any] = details or {}
        self.may_have_happened = status >= 500

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return self.status == 429 or self.status >= 500


class InvalidRequest(ApiError):
    """The request is not valid. `errors` has each problem."""


class Unauthorized(ApiError):
    """The server got no key, or does not know it."""

    advice = "give a key that this server knows: Gpuherd(key=…) or GPUHERD_API_KEY"


class Forbidden(ApiError):
    """The key lacks the scope."""

    advice = "ask an admin for a key with a wider scope"


class NotFound(ApiError):
    """The resource does not exist, or this key may not see it."""


class Conflict(ApiError):
    """Not possible in the present state."""


class NoCapacity(Conflict):
    """The cloud has sold out the requested offers."""

    advice = "try another product, more regions, a higher price limit, or later"


class TooManyRequests(ApiError):
    """The key has sent too many requests, or has used up its quota."""


class Unavailable(ApiError):
    """The server, or the cloud behind it, cannot answer now."""

    advice = "try again in a while"


ERROR_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: TooManyRequests,
}
NO_CAPACITY_CODES = frozenset({"NO_OPTIMAL_PRODUCT", "NO_OPTIMAL_PRODUCT_ANY_REGION", "RESOURCE_CONSTRAINTS"})


class InstanceFailed(GpuherdError):
    """The instance will not become what was waited for without a new order."""

    def __init__(self, instance: Instance, until: str, operation: Operation | None = None) -> None:
        error = (operation.error if operation else None) or instance.last_error
        why = instance.status_reason or (error.message if error else "") or "no reason is known"
        code = f" ({error.code})" if error else ""
        super().__init__(
            f"{instance.name} ({instance.id}) is {instance.status} and will not be {until}: {why}{code}; "
            f"herd.instances.events({instance.id!r}) tells what happened"
        )
        self.instance = instance
        self.until = until
        # The start, restart, stop or delete that was followed, if there was one.
        self.operation = operation


class WaitTimedOut(GpuherdError):
    """The time is over before the instance is ready. `instance` is its last known state."""

    def __init__(
        self,
        instance: Instance,
        until: str,
        timeout_s: float,
        error: str = "",
        operation: Operation | None = None,
    ) -> None:
        unsure = f" (the server could not be asked at the end: {error})" if error else ""
        super().__init__(
            f"{instance.name} ({instance.id}) is {instance.status} and not {until} after {timeout_s:.4g} s"
            f"{unsure}; the server goes on with it: wait again, or delete it"
        )
        self.instance = instance
        self.until = until
        self.operation = operation
        # True if the server answered the last request.
        self.is_reachable = not error


class PrewarmFailed(GpuherdError):
    """The cloud could not pull an image ahead of time. `prewarm` is the task."""

    def __init__(self, prewarm: Prewarm) -> None:
        why = "; ".join(prewarm.reasons or ()) or "no reason is known"
        super().__init__(f"{prewarm.image_url} could not be pulled into {prewarm.region}: {why}")
        self.prewarm = prewarm


class PrewarmTimedOut(GpuherdError):
    """The time is over before the image is pulled. `prewarm` is its last known state, if any."""

    def __init__(self, id: str, prewarm: Prewarm | None, timeout_s: float, error: str = "") -> None:
        state = prewarm.state if prewarm else "not known"
        unsure = f" (the server could not be asked at the end: {error})" if error else ""
        super().__init__(
            f"the state of the prewarm task {id} is {state} after {timeout_s:.4g} s{unsure}; "
            "the cloud goes on with it: wait again, or delete it"
        )
        self.id = id
        self.prewarm = prewarm


class NotReleased(GpuherdError):
    """A rented instance could not be released, and may still cost money."""

    def __init__(self, message: str, name: str, instance: Instance | None) -> None:
        super().__init__(message)
        self.name = name
        self.instance = instance


class SecretLost(GpuherdError):
    """The only answer with a new secret was lost. `id` is the key or endpoint that was made."""

    def __init__(self, what: str, id: str) -> None:
        super().__init__(
            f"{what} {id} was made, but the answer with its secret was lost on the way, and the server shows "
            "that only once; delete it and make another"
        )
        self.id = id


class WebhookInvalid(GpuherdError):
    """The signature is wrong, the message is too old, or it is not a gpuherd webhook."""
