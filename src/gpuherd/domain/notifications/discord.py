"""A notice for Discord's webhooks."""

from __future__ import annotations

import re
from typing import Any

from gpuherd.domain.notifications.notice import Notice, NoticeLevel
from gpuherd.domain.notifications.plain_words import without_mentions

_COLOURS = {
    NoticeLevel.INFO: 0x5865F2,
    NoticeLevel.GOOD: 0x2E9E5B,
    NoticeLevel.WARNING: 0xE0A100,
    NoticeLevel.BAD: 0xD83A3A,
}
_MARKUP = re.compile(r"([\\*_~`|<>\[\]()#])")


def discord_message(notice: Notice) -> dict[str, Any]:
    """Return the message: one embed that calls nobody, whatever stands in it.

    An escape doubles a character at most, so a notice stays within Discord's limits (256 for a title, 1,024
    for a field, 6,000 in all).
    """
    embed: dict[str, Any] = {
        "title": _escaped(notice.title),
        "color": _COLOURS[notice.level],
        "timestamp": notice.at.isoformat(),
        "footer": {"text": notice.type},
        "fields": [
            {"name": name, "value": _escaped(value), "inline": len(value) <= 40}
            for name, value in notice.facts
        ],
    }
    lines = [_escaped(notice.text)] if notice.text else []
    if notice.command:
        lines.append(f"`{notice.command}`")
    if lines:
        embed["description"] = "\n".join(lines)
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def _escaped(text: str) -> str:
    """Return a text that Discord shows as it is: no markup, no masked link, no mention."""
    return _MARKUP.sub(r"\\\1", without_mentions(text))
