"""Events as messages for people: Slack, Discord, ntfy, mail."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

TITLE_MAX_CHARS = 120
TEXT_MAX_CHARS = 600
FACT_MAX_CHARS = 200
_NAME_MAX_CHARS = 60
_OUR_ID = re.compile(r"[a-z]{2,5}_[0-9a-z]{1,40}")
_NUMBER = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,12})?")


class NoticeLevel(StrEnum):
    """How urgent the message is."""

    INFO = "info"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Notice:
    """What happened, why, the known facts, and what the user can do."""

    title: str
    text: str
    level: NoticeLevel
    type: str
    at: datetime
    facts: tuple[tuple[str, str], ...] = ()
    # A command to copy. It never contains text that a stranger chose.
    command: str = ""


@dataclass(frozen=True)
class _Words:
    title: str
    level: NoticeLevel = NoticeLevel.INFO
    command: str = ""


_WHY, _LEFTOVERS = "gpuherd why {id}", "gpuherd leftovers"


_WORDS = {
    "instance.created": _Words("{name} is wanted"),
    "instance.waiting": _Words("{name} is waiting", command=_WHY),
    "instance.granted": _Words("{name} has got a machine", NoticeLevel.GOOD),
    "instance.starting": _Words("{name} is starting"),
    "instance.running": _Words("{name} is running"),
    "instance.health_checking": _Words("{name} is being checked"),
    "instance.ready": _Words("{name} is ready", NoticeLevel.GOOD, "gpuherd ssh {id}"),
    "instance.failed": _Words("{name} has failed", NoticeLevel.BAD, _WHY),
    "instance.timeout": _Words("{name} was not ready in time", NoticeLevel.BAD, _WHY),
    "instance.stopping": _Words("{name} is stopping"),
    "instance.exited": _Words("{name} has stopped", command=_WHY),
    "instance.deleted": _Words("{name} is deleted"),
    "instance.reclaim_notice": _Words("{name} will be taken back by the cloud", NoticeLevel.WARNING, _WHY),
    "instance.reclaim_withdrawn": _Words("{name} is not taken back after all", NoticeLevel.GOOD),
    "instance.replacing": _Words("{name} gets a new machine", command=_WHY),
    "instance.replaced": _Words("{name} runs on a new machine", NoticeLevel.GOOD, "gpuherd ssh {id}"),
    "instance.replacement_refused": _Words("{name} cannot be replaced now", NoticeLevel.BAD, _WHY),
    "instance.replacement_gave_up": _Words("{name} is not replaced any more", NoticeLevel.BAD, _WHY),
    "instance.lease_ending": _Words("{name} ends soon", NoticeLevel.WARNING, "gpuherd lease {id} +2h"),
    "instance.lease_ended": _Words("{name} has reached the end of its lease", command=_WHY),
    "instance.silence_ended": _Words("{name} was not heard of any more, and is ended", command=_WHY),
    "instance.idle_warning": _Words(
        "{name} seems idle and ends soon", NoticeLevel.WARNING, "gpuherd keep {id}"
    ),
    "instance.idle_ended": _Words("{name} was idle, and is ended", command=_WHY),
    "instance.data_expiring": _Words("{name} loses its data soon", NoticeLevel.WARNING, "gpuherd start {id}"),
    "instance.orphan_detected": _Words(
        "A machine costs money and belongs to nobody", NoticeLevel.WARNING, "gpuherd orphans"
    ),
    "costs.drift": _Words("The bill and the meter do not agree", NoticeLevel.WARNING, "gpuherd costs"),
    "costs.price_changed": _Words("A price has changed", NoticeLevel.WARNING, _LEFTOVERS),
    "account.low_balance": _Words("The balance runs low", NoticeLevel.BAD, "gpuherd balance"),
    "budget.warning": _Words(
        "Budget {name}: {percent} % is spent", NoticeLevel.WARNING, "gpuherd budgets ls"
    ),
    "budget.exhausted": _Words("Budget {name} is used up", NoticeLevel.BAD, "gpuherd budgets ls"),
    "budget.reset": _Words("Budget {name} can be spent again", NoticeLevel.GOOD, "gpuherd budgets ls"),
    "webhook.test": _Words("gpuherd can reach you", NoticeLevel.GOOD),
}


def notice_of(event: Mapping[str, Any]) -> Notice:
    """Return the body of a webhook as a notice, without missing parts."""
    kind, data = str(event.get("type", "")), _mapping(event.get("data"))
    words = _WORDS.get(kind) or _Words(
        f"{{name}}: {plain_words(kind, 60).rpartition('.')[2].replace('_', ' ')}"
    )
    if kind == "instance.exited" and data.get("goal") == "running":
        # No user asked for this stop.
        words = _Words("{name} has stopped by itself", NoticeLevel.BAD, _WHY)
    name = plain_words(data.get("name"), _NAME_MAX_CHARS) or plain_words(
        data.get("cloudInstanceId") or "gpuherd", _NAME_MAX_CHARS
    )
    reason = data.get("reason") or data.get("statusReason") or data.get("message")
    if reason == data.get("status"):
        # "running" adds nothing to the title.
        reason = None
    return Notice(
        title=plain_words(
            _fill(words.title, name=name, percent=_number(data.get("percent"))), TITLE_MAX_CHARS
        ),
        text=plain_words(reason, TEXT_MAX_CHARS),
        level=words.level,
        type=plain_words(kind, FACT_MAX_CHARS),
        at=_moment(event.get("timestamp")) or datetime.fromtimestamp(0, UTC),
        facts=tuple(
            (it, shown) for it, value in _facts(data) if (shown := plain_words(value, FACT_MAX_CHARS))
        ),
        command=_command(words.command, data),
    )


def notice_lines(notice: Notice) -> list[str]:
    """Return a notice as lines of plain text, without its title."""
    lines = [notice.text] if notice.text else []
    lines += [f"{name}: {value}" for name, value in notice.facts]
    return [*lines, notice.command] if notice.command else lines


def _facts(data: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    if data.get("productName"):
        count = _number(data.get("gpuNum"))
        yield "GPU", f"{count} × {data['productName']}" if count else data["productName"]
    yield "Region", data.get("region")
    if price := _number(data.get("hourlyPrice")):
        yield "Price", f"${price} an hour"
    lease = _mapping(data.get("lease"))
    if ends_at := _moment(lease.get("endsAt")):
        yield "Ends", f"{_stamp(ends_at)}, then {lease.get('then')}"
    if expected := _moment(data.get("lossExpectedAt")):
        yield "Loss expected", _stamp(expected)
    if data.get("budgetId") and (spent := _number(data.get("spent"))):
        yield "Spent", f"${spent} of ${_number(data.get('amount'))}"
    if hourly := _number(data.get("hourlyNow")):
        yield "Goes on", f"${hourly} an hour"
    yield "Machine", data.get("cloudInstanceId")
    yield "Id", data.get("instanceId") or data.get("budgetId")


def _command(template: str, data: Mapping[str, Any]) -> str:
    its_id = str(data.get("instanceId") or "")
    if "{id}" not in template:
        return template
    return _fill(template, id=its_id) if _OUR_ID.fullmatch(its_id) else ""


def _fill(template: str, **values: str) -> str:
    # Not `format`: the text of a fallback contains foreign words.
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> str:
    """Return a number as text; empty if the value is not a number."""
    text = "" if value is None or isinstance(value, bool) else str(value)
    return text if _NUMBER.fullmatch(text) else ""


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


# Python calls these printable, but they are invisible.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


_BROKEN = "\ufffd"
_ELLIPSIS = "…"
_ZERO_WIDTH = "\u200b"


def plain_words(value: object, max_chars: int) -> str:
    """Return a text on one line, cut to `max_chars`: no control characters, no bidi overrides, nothing
    invisible.
    """
    line = " ".join("".join(map(_visible, "" if value is None else str(value))).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + _ELLIPSIS


def without_mentions(text: str) -> str:
    """Return a text in which `@channel` mentions no one and an address is no link."""
    return text.replace("@", f"@{_ZERO_WIDTH}").replace("://", f":{_ZERO_WIDTH}//")


def _visible(char: str) -> str:
    if char.isspace() or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return " "
    if char.isprintable() and char not in _INVISIBLE and unicodedata.category(char) != "Cf":
        return char
    # Lone surrogates cannot be encoded; the other categories have no glyph.
    return _BROKEN if unicodedata.category(char) in ("Cs", "Cn", "Co") else ""


# Slack's limit is 150, counted after the escapes.
_HEADER_MAX_CHARS = 150


def slack_message(notice: Notice) -> dict[str, Any]:
    """Return the message: blocks of plain text, which Slack does not parse for markup, and a fallback."""
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(notice.title, _HEADER_MAX_CHARS)}]
    if notice.text:
        blocks.append({"type": "section", "text": _plain(notice.text)})
    if notice.facts:
        blocks.append({"type": "section", "fields": [_plain(f"{it}\n{value}") for it, value in notice.facts]})
    if notice.command:
        blocks.append({"type": "section", "text": _plain(notice.command)})
    return {
        # Shown in notifications, and by servers without block support.
        "text": "\n".join(map(_escaped, (notice.title, *notice_lines(notice)))),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": blocks,
    }


def _plain(text: str, max_chars: int = 2000) -> dict[str, Any]:
    escaped = _escaped(text)
    while len(escaped) > max_chars:
        # Cut before the escapes, so that no escape is cut in two.
        text = text[:-1]
        escaped = _escaped(f"{text}…")
    return {"type": "plain_text", "text": escaped, "emoji": False}


def _escaped(text: str) -> str:
    """Return a text without links, mentions or commands: Slack writes those in `<` and `>`."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return without_mentions(text)


_COLOURS = {
    NoticeLevel.INFO: 0x5865F2,
    NoticeLevel.GOOD: 0x2E9E5B,
    NoticeLevel.WARNING: 0xE0A100,
    NoticeLevel.BAD: 0xD83A3A,
}


_MARKUP = re.compile(r"([\\*_~`|<>\[\]()#])")


def discord_message(notice: Notice) -> dict[str, Any]:
    """Return the message: one embed that mentions no one, whatever the text contains.

    An escape at most doubles a character, so a notice stays within Discord's limits (256 for a title, 1,024
    for a field, 6,000 in all).
    """
    embed: dict[str, Any] = {
        "title": _discord_escaped(notice.title),
        "color": _COLOURS[notice.level],
        "timestamp": notice.at.isoformat(),
        "footer": {"text": notice.type},
        "fields": [
            {"name": name, "value": _discord_escaped(value), "inline": len(value) <= 40}
            for name, value in notice.facts
        ],
    }
    lines = [_discord_escaped(notice.text)] if notice.text else []
    if notice.command:
        lines.append(f"`{notice.command}`")
    if lines:
        embed["description"] = "\n".join(lines)
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def _discord_escaped(text: str) -> str:
    """Return a text that Discord shows unchanged: no markup, no masked link, no mention."""
    return _MARKUP.sub(r"\\\1", without_mentions(text))


_PRIORITIES = {NoticeLevel.INFO: 3, NoticeLevel.GOOD: 3, NoticeLevel.WARNING: 4, NoticeLevel.BAD: 5}


_TAGS = {
    NoticeLevel.INFO: "information_source",
    NoticeLevel.GOOD: "white_check_mark",
    NoticeLevel.WARNING: "warning",
    NoticeLevel.BAD: "rotating_light",
}


# ntfy turns a message over 4,096 bytes into a file.
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


@dataclass(frozen=True)
class MailText:
    """The content of a mail; the subject is one line."""

    subject: str
    body: str


def mail_text(notice: Notice) -> MailText:
    """Return the mail for a notice."""
    foot = f"{notice.type} at {notice.at.strftime('%Y-%m-%d %H:%M:%S UTC')}, sent by gpuherd"
    lines = [notice.title, "", *notice_lines(notice), "", "-- ", foot]
    # Otherwise a mail program could decode a name to text that was never checked (RFC 2047).
    title = notice.title.replace("=?", "= ?")
    return MailText(f"[gpuherd] {title}", "\n".join(lines) + "\n")
