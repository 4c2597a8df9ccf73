"""Where a notification goes: which addresses a kind of endpoint takes, and how they may be shown.

Whoever knows the address of a Slack or Discord webhook, or the topic of an ntfy server, can write there (and
with ntfy, read): such an address is a secret, and only its host is shown.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from gpuherd.domain.access.secret import HIDDEN
from gpuherd.domain.net.egress_policy import BlockedTarget, EgressPolicy, check_url
from gpuherd.domain.net.url_redaction import redact_query
from gpuherd.domain.notifications.kind import EndpointKind

MAILTO = "mailto:"
ADDRESS_MAX_CHARS = 254
# No quotes, comments, routes (`%`, `!`) or literals: nothing that a relay could read as another host.
_LOCAL_PART = re.compile(r"[A-Za-z0-9_+=~'&-]+(?:\.[A-Za-z0-9_+=~'&-]+)*")
_HOST_NAME = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]"
)
_NTFY_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_target(kind: EndpointKind, target: str, policy: EgressPolicy) -> str:
    """Return the address as it is kept, or raise `BlockedTarget`."""
    if kind is EndpointKind.EMAIL:
        return f"{MAILTO}{mail_address(target)}"
    check_url(target, policy)
    if kind is EndpointKind.NTFY:
        split_ntfy_topic(target)
    return target


def shown_target(kind: EndpointKind, target: str) -> str:
    """Return the address without what is secret in it."""
    if kind is EndpointKind.WEBHOOK:
        return redact_query(target)
    if kind is EndpointKind.EMAIL:
        return target
    try:
        parts = urlsplit(target)
    except ValueError:
        # A row that somebody changed must not hide the other endpoints.
        return HIDDEN
    return f"{parts.scheme}://{parts.netloc}/{HIDDEN}"


def mail_address(target: str) -> str:
    """Return the address of a mail target, with or without `mailto:`; `BlockedTarget` if it is none."""
    address = target.removeprefix(MAILTO)
    local, _, domain = address.rpartition("@")
    if len(address) > ADDRESS_MAX_CHARS or len(local) > 64:
        raise BlockedTarget(f"an e-mail address has at most {ADDRESS_MAX_CHARS} characters")
    if not _LOCAL_PART.fullmatch(local) or not _HOST_NAME.fullmatch(domain):
        raise BlockedTarget("it is no plain e-mail address such as mailto:ops@example.com")
    return address


def split_ntfy_topic(url: str) -> tuple[str, str]:
    """Return the server, to which JSON is published, and the topic; `BlockedTarget` if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BlockedTarget("the URL cannot be read") from None
    path, _, topic = parts.path.rpartition("/")
    if not _NTFY_TOPIC.fullmatch(topic):
        raise BlockedTarget("it names no ntfy topic, as in https://ntfy.sh/my-topic")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/", parts.query, "")), topic
