"""A notice for ntfy, as it is published in JSON: no header has to carry what strangers wrote."""

from __future__ import annotations

from typing import Any

from gpuherd.domain.notifications.notice import Notice, NoticeLevel, notice_lines

_PRIORITIES = {NoticeLevel.INFO: 3, NoticeLevel.GOOD: 3, NoticeLevel.WARNING: 4, NoticeLevel.BAD: 5}
_TAGS = {
    NoticeLevel.INFO: "information_source",
    NoticeLevel.GOOD: "white_check_mark",
    NoticeLevel.WARNING: "warning",
    NoticeLevel.BAD: "rotating_light",
}
# What is longer than 4,096 bytes becomes a file.
_MESSAGE_MAX_BYTES = 3500


def ntfy_message(notice: Notice, topic: str) -> dict[str, Any]:
    """Return the message: plain text, without actions or links that a stranger could have chosen."""
    text = "\n".join(notice_lines(notice)) or notice.title
    return {
        "topic": topic,
        "title": notice.title,
        "message": text.encode()[:_MESSAGE_MAX_BYTES].decode("utf-8", "ignore"),
        "priority": _PRIORITIES[notice.level],
        "tags": [_TAGS[notice.level]],
        "markdown": False,
    }
