"""A notice for Slack's incoming webhooks, and for servers that speak the same (Mattermost, Rocket.Chat)."""

from __future__ import annotations

from typing import Any

from gpuherd.domain.notifications.notice import Notice, notice_lines
from gpuherd.domain.notifications.plain_words import without_mentions

# Slack's own limit is 150, counted after the escapes.
_HEADER_MAX_CHARS = 150


def slack_message(notice: Notice) -> dict[str, Any]:
    """Return the message: blocks of plain text, in which Slack looks for no markup, and a fallback text."""
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(notice.title, _HEADER_MAX_CHARS)}]
    if notice.text:
        blocks.append({"type": "section", "text": _plain(notice.text)})
    if notice.facts:
        blocks.append({"type": "section", "fields": [_plain(f"{it}\n{value}") for it, value in notice.facts]})
    if notice.command:
        blocks.append({"type": "section", "text": _plain(notice.command)})
    return {
        # Shown in notifications, and by servers that know no blocks.
        "text": "\n".join(map(_escaped, (notice.title, *notice_lines(notice)))),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": blocks,
    }


def _plain(text: str, max_chars: int = 2000) -> dict[str, Any]:
    escaped = _escaped(text)
    while len(escaped) > max_chars:
        # Cut before the escapes, so that none of them is cut in two.
        text = text[:-1]
        escaped = _escaped(f"{text}…")
    return {"type": "plain_text", "text": escaped, "emoji": False}


def _escaped(text: str) -> str:
    """Return a text in which nothing is a link, a mention or a command: Slack writes those in `<` and `>`."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return without_mentions(text)
