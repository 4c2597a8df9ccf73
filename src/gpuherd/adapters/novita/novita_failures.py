"""Translates Novita's errors: the only module that decides what a reply proves.

A failed read changed nothing. A failed change certainly did not happen only if Novita itself said so, in a
readable body. Otherwise it may have happened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_json import safe_text
from gpuherd.adapters.novita.redaction import NO_SECRETS, CallSecrets
from gpuherd.domain.errors import (
    CloudRefused,
    CloudTimeout,
    CloudUnavailable,
    Conflict,
    GpuherdError,
    KeyRefused,
    MachineGone,
    NotFound,
    OutcomeUnknown,
    OutOfStock,
    RateLimited,
)

MESSAGE_CHARS = 300
REASON_CHARS = 80


class ResourceKind(Enum):
    """The subject of a call, and so the meaning of "not found"."""

    ACCOUNT = "account"
    MACHINE = "machine"
    TEMPLATE = "template"
    VOLUME = "volume"
    PREWARM = "prewarm task"


NO_STOCK = frozenset(
    {
        "INSUFFICIENT_RESOURCE",
        "MIGRATE_INSUFFICIENT_RESOURCE",
        "CREATE_GPU_NUM_LIMIT",
        # A broken cluster or node: another offer may work.
        "CLUSTER_STATUS",
        "NODE_STATUS",
    }
)


NO_MONEY = frozenset({"BALANCE_NOT_ENOUGH", "EXPIRED_OR_BALANCE_NOT_ENOUGH"})
QUOTA = frozenset({"CREATE_INSTANCE_LIMIT"})
BAD_KEY = frozenset({"UNAUTHORIZED", "FORBIDDEN"})
THROTTLED = frozenset({"RATE_LIMIT_EXCEEDED"})
GONE = frozenset({"RESOURCE_NOT_FOUND"})
NO_TEMPLATE = frozenset({"TEMPLATE_NOT_FOUND", "TEMPLATE_IS_PRIVATE"})
NO_VOLUME = frozenset({"NETWORK_STORAGE_NOT_FOUND"})
VOLUME_IN_USE = frozenset({"NETWORK_STORAGE_IN_USE"})
NO_VOLUMES_HERE = frozenset({"CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT"})
OF_VOLUMES = NO_VOLUME | VOLUME_IN_USE | NO_VOLUMES_HERE
_KNOWN = NO_STOCK | NO_MONEY | QUOTA | BAD_KEY | THROTTLED | GONE | NO_TEMPLATE | OF_VOLUMES
_WORD = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


# Novita read the call and did nothing. 408 and 5xx do not prove that.
# guard: a server error is no clear no
REFUSAL_STATUSES = frozenset({400, 401, 402, 403, 404, 409, 422})


@dataclass(frozen=True)
class NovitaProblem:
    """Novita's description of a problem."""

    reason: str
    # For people: without the secrets of the call.
    message: str
    # Only for decisions: it may quote a password.
    raw_message: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.reason, self.message))) or "no reason given"


def read_problem(body: dict[str, Any] | None, secrets: CallSecrets = NO_SECRETS) -> NovitaProblem | None:
    """Return the problem in an error body; None if the body is not from Novita."""
    if body is None:
        return None
    message = next(
        (body[key] for key in ("message", "error", "msg") if isinstance(body.get(key), str) and body[key]), ""
    )
    reason = next(
        (body[key] for key in ("reason", "code") if isinstance(body.get(key), str) and body[key]), ""
    ) or _reason_in(message)
    if not reason and not message and not isinstance(body.get("code"), int):
        return None
    # Error codes may be shown even if sentences may not.
    is_word = reason in _KNOWN or (secrets.has_unknown and _WORD.fullmatch(reason))
    shown_reason = reason if is_word else secrets.redact(reason)
    return NovitaProblem(
        safe_text(shown_reason, REASON_CHARS),
        safe_text(secrets.redact(message), MESSAGE_CHARS),
        safe_text(message, MESSAGE_CHARS),
    )


def _reason_in(message: str) -> str:
    return next((word for word in _WORD.findall(message[:4096]) if word in _KNOWN), "")


def failure_of_read(reply: NovitaReply, about: ResourceKind) -> GpuherdError | None:
    """Return why a read failed; None if it succeeded."""
    if reply.is_success:
        return None if reply.body is not None else unreadable()
    if 400 <= reply.status < 500 and reply.status != 408:
        problem = read_problem(reply.body, reply.secrets)
        if problem is not None or reply.status in (401, 429) or (reply.status == 404 and reply.is_empty):
            return _refusal(reply, problem or NovitaProblem("", ""), about)
    # Redirects are not followed, and gateway pages are not from Novita: neither proves anything.
    return _no_answer(reply)


def failure_of_change(
    reply: NovitaReply, about: ResourceKind, *, trust_429: bool = True
) -> GpuherdError | None:
    """Return why a change was not made, or may not have been; None if it was accepted."""
    if reply.is_success and not reply.is_garbage:
        return None
    problem = read_problem(reply.body, reply.secrets)
    if reply.status == 429 and trust_429:
        return _refusal(reply, problem or NovitaProblem("", ""), about)
    if reply.status in REFUSAL_STATUSES and problem is not None:
        return _refusal(reply, problem, about)
    if reply.status == 404 and reply.is_empty and about is ResourceKind.MACHINE:
        return MachineGone("Novita answered 404")
    return outcome_unknown(reply)


def outcome_unknown(reply: NovitaReply) -> OutcomeUnknown:
    """Return the error for a reply that does not prove what was done."""
    return OutcomeUnknown(
        f"Novita's answer (HTTP {reply.status}) does not say whether it was done",
        details={"status": reply.status, "reply": reply.excerpt},
    )


def _no_answer(reply: NovitaReply) -> CloudUnavailable:
    kind = CloudTimeout if reply.status in (408, 504) else CloudUnavailable
    return kind(f"Novita answered HTTP {reply.status}", retry_after_s=reply.retry_after_s)


def _refusal(reply: NovitaReply, problem: NovitaProblem, about: ResourceKind) -> GpuherdError:
    status, reason, details = reply.status, problem.reason, {"reason": problem.reason}
    said = f"Novita refuses (HTTP {status}): {problem}"
    if reason in THROTTLED or status == 429:
        return RateLimited("Novita wants fewer calls", retry_after_s=reply.retry_after_s)
    if about is ResourceKind.TEMPLATE and _is_missing(
        status, problem, NO_TEMPLATE | GONE, "template not found"
    ):
        return NotFound(f"there is no such template: {problem}", code="TEMPLATE_NOT_FOUND")
    if about is ResourceKind.VOLUME:
        if _is_missing(status, problem, NO_VOLUME | GONE, "network storage not found"):
            return NotFound(f"there is no such volume: {problem}", code="VOLUME_NOT_FOUND")
        if reason in VOLUME_IN_USE:
            return Conflict("a machine has this volume; delete that one first", code="VOLUME_IN_USE")
        if reason in NO_VOLUMES_HERE:
            return Conflict("this region has no network volumes", code="VOLUMES_NOT_SUPPORTED")
    if about is ResourceKind.PREWARM and _is_missing(status, problem, GONE, "task not found"):
        return NotFound(f"there is no such prewarm task: {problem}", code="PREWARM_NOT_FOUND")
    if about is ResourceKind.MACHINE and _is_missing(status, problem, GONE, "instance not found"):
        return MachineGone(f"Novita has no such machine: {problem}")
    if reason in NO_STOCK:
        return OutOfStock(said, details=details)
    if reason in NO_MONEY or status == 402:
        return CloudRefused(said, code="INSUFFICIENT_BALANCE", details=details)
    if reason in QUOTA:
        return CloudRefused(said, code="QUOTA_EXCEEDED", details=details)
    if reason in BAD_KEY or status in (401, 403):
        return KeyRefused(said, details=details)
    if "invalid state change" in problem.raw_message.casefold():
        return CloudRefused(said, code="INVALID_STATE_CHANGE", details=details)
    return CloudRefused(said, details=details)


def _is_missing(status: int, problem: NovitaProblem, reasons: frozenset[str], words: str) -> bool:
    return status == 404 or problem.reason in reasons or words in problem.raw_message.casefold()


def unreadable() -> CloudUnavailable:
    """Return the error for an unexpected reply."""
    return CloudUnavailable("Novita's answer could not be read")


def not_sent(why: str) -> CloudUnavailable:
    """Return the error for a call of which no byte was written."""
    return CloudUnavailable(f"Novita could not be reached: {why}")


def no_reply(why: str, *, timed_out: bool) -> CloudUnavailable:
    """Return the error for a read whose reply was lost."""
    return (CloudTimeout if timed_out else CloudUnavailable)(f"no answer from Novita: {why}")


def lost_reply(why: str) -> OutcomeUnknown:
    """Return the error for a change whose reply was lost after it may have been written."""
    return OutcomeUnknown(f"the call may have been made, but no answer came: {why}")
