"""aiohttp's and the system's errors in our words, without the URL that theirs carry."""

from __future__ import annotations

import errno
import ssl

import aiohttp

from gpuherd.adapters.egress.pinning import NotPinned
from gpuherd.ports.egress import EgressFailure, FailureCategory

_BY_ERRNO = {
    errno.ECONNREFUSED: FailureCategory.REFUSED,
    errno.ECONNRESET: FailureCategory.RESET,
    errno.ECONNABORTED: FailureCategory.RESET,
    errno.EPIPE: FailureCategory.RESET,
    errno.ETIMEDOUT: FailureCategory.TIMEOUT,
}

_SENTENCES = {
    FailureCategory.BLOCKED_TARGET: "the address was not judged",
    FailureCategory.DNS: "the host name could not be resolved",
    FailureCategory.REFUSED: "the host refused the connection",
    FailureCategory.RESET: "the host closed the connection before its reply was complete",
    FailureCategory.TLS: "the TLS handshake failed",
    FailureCategory.TIMEOUT: "no complete reply came in time",
    FailureCategory.PROTOCOL: "the exchange was not valid HTTP",
    FailureCategory.UNREACHABLE: "the host could not be reached",
}


def failure(category: FailureCategory) -> EgressFailure:
    """Return the failure with the sentence that goes with its category."""
    return EgressFailure(category, _SENTENCES[category])


def failure_of(error: Exception) -> EgressFailure:
    """Return `error` as the category and sentence a caller can use."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return EgressFailure(FailureCategory.TLS, "the certificate is not valid for this host")
    return failure(_category(error))


def _category(error: Exception) -> FailureCategory:
    match error:
        case NotPinned() | aiohttp.ClientConnectorError(os_error=NotPinned()):
            return FailureCategory.BLOCKED_TARGET
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return FailureCategory.TLS
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionResetError():
            return FailureCategory.RESET
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) | OSError(errno=int(number)):
            return _BY_ERRNO.get(number, FailureCategory.UNREACHABLE)
        case OSError():
            return FailureCategory.UNREACHABLE
        case _:
            return FailureCategory.PROTOCOL
