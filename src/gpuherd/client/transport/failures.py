"""Why a connection failed, in words that hold nothing of the request."""

from __future__ import annotations


def reason_of(error: BaseException) -> str:
    """Return the reason for people."""
    match getattr(error, "os_error", None) or error:
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError(strerror=str(words)) if words:
            return words
        case other:
            # Only its kind: the text of a protocol error may quote what was sent.
            return f"the connection broke ({type(other).__name__})"
