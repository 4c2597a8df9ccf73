"""Slack, Discord, ntfy and mail: nothing that a stranger chose is markup, a mention or a header in any."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuherd.domain.webhooks.people_message import (
    Notice,
    NoticeLevel,
    discord_message,
    mail_text,
    notice_of,
    ntfy_message,
    slack_message,
)
from tests.domain.notifications.hostile_words import HOSTILE_WORDS
from tests.domain.notifications.test_notice import event

AT = datetime(2026, 1, 1, tzinfo=UTC)
NOTICE = Notice(
    title="trainer is ready",
    text="running & well",
    level=NoticeLevel.GOOD,
    type="instance.ready",
    at=AT,
    facts=(("GPU", "1 × RTX_4090"), ("Region", "CN-HK-01")),
    command="gpuherd ssh inst_1",
)


def hostile(word: str) -> Notice:
    return notice_of(event("instance.failed", name=word, statusReason=word, productName=word, region=word))


def texts(value: Any) -> list[str]:
    """Return every text inside of JSON."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for it in inner for text in texts(it)]


def test_slack_gets_blocks_of_plain_text_and_a_fallback() -> None:
    plain = {"type": "plain_text", "emoji": False}
    assert slack_message(NOTICE) == {
        "text": "trainer is ready\nrunning &amp; well\n"
        "GPU: 1 × RTX_4090\nRegion: CN-HK-01\ngpuherd ssh inst_1",
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": {**plain, "text": "trainer is ready"}},
            {"type": "section", "text": {**plain, "text": "running &amp; well"}},
            {
                "type": "section",
                "fields": [{**plain, "text": "GPU\n1 × RTX_4090"}, {**plain, "text": "Region\nCN-HK-01"}],
            },
            {"type": "section", "text": {**plain, "text": "gpuherd ssh inst_1"}},
        ],
    }


@pytest.mark.proves("N1")
def test_slack_finds_no_control_sequence_and_no_mention(subtests: pytest.Subtests) -> None:
    for word in HOSTILE_WORDS:
        with subtests.test(word=word):
            message = slack_message(hostile(word))
            for text in texts(message):
                assert "<" not in text and ">" not in text
                assert "@channel" not in text and "@here" not in text and "@everyone" not in text
                assert "://" not in text
                # Each ampersand begins one of the three escapes.
                assert text.count("&") == sum(text.count(it) for it in ("&amp;", "&lt;", "&gt;"))
            header, *sections = message["blocks"]
            assert 1 <= len(header["text"]["text"]) <= 150
            for block in sections:
                assert len(block.get("fields", ())) <= 10
                assert all(len(it["text"]) <= 2000 for it in block.get("fields", [block.get("text")]))
            json.dumps(message, ensure_ascii=False).encode()


def test_discord_gets_an_embed_in_the_colour_of_the_event() -> None:
    assert discord_message(NOTICE) == {
        "embeds": [
            {
                "title": "trainer is ready",
                "description": "running & well\n`gpuherd ssh inst_1`",
                "color": 0x2E9E5B,
                "timestamp": "2026-01-01T00:00:00+00:00",
                "footer": {"text": "instance.ready"},
                "fields": [
                    {"name": "GPU", "value": "1 × RTX\\_4090", "inline": True},
                    {"name": "Region", "value": "CN-HK-01", "inline": True},
                ],
            }
        ],
        "allowed_mentions": {"parse": []},
    }


def test_discord_calls_nobody_and_finds_no_markup(subtests: pytest.Subtests) -> None:
    for word in HOSTILE_WORDS:
        with subtests.test(word=word):
            message = discord_message(hostile(word))
            assert message["allowed_mentions"] == {"parse": []}
            assert "content" not in message
            (embed,) = message["embeds"]
            command = "`gpuherd why inst_01kdvdna00sngxhwbavy8vep2a`"
            assert embed["description"].endswith(command)
            theirs = [embed["title"], embed["description"].removesuffix(command)]
            theirs += [it["value"] for it in embed["fields"]]
            for text in theirs:
                bare = text.replace("\\\\", "")
                for char in "*_~`|<>[]()#":
                    assert bare.count(char) == bare.count(f"\\{char}"), (char, text)
                assert "@everyone" not in text and "@here" not in text and "://" not in text
            assert 1 <= len(embed["title"]) <= 256
            assert all(1 <= len(it["value"]) <= 1024 for it in embed["fields"])
            assert len(embed["fields"]) <= 25 and sum(map(len, texts(embed))) <= 6000
            json.dumps(message, ensure_ascii=False).encode()


def test_ntfy_gets_a_priority_and_a_tag_of_the_event() -> None:
    assert ntfy_message(NOTICE, "herd") == {
        "topic": "herd",
        "title": "trainer is ready",
        "message": "running & well\nGPU: 1 × RTX_4090\nRegion: CN-HK-01\ngpuherd ssh inst_1",
        "priority": 3,
        "tags": ["white_check_mark"],
        "markdown": False,
    }
    assert ntfy_message(hostile("x"), "herd")["priority"] == 5


def test_ntfy_messages_stay_messages_and_have_no_actions(subtests: pytest.Subtests) -> None:
    for word in HOSTILE_WORDS:
        with subtests.test(word=word):
            message = ntfy_message(hostile(word), "herd")
            assert set(message) == {"topic", "title", "message", "priority", "tags", "markdown"}
            assert message["topic"] == "herd" and message["markdown"] is False
            assert "\n" not in message["title"] and 0 < len(message["message"].encode()) < 4096


def test_a_mail_has_one_subject_and_plain_text() -> None:
    text = mail_text(NOTICE)
    assert text.subject == "[gpuherd] trainer is ready"
    assert text.body.splitlines() == [
        *("trainer is ready", "", "running & well", "GPU: 1 × RTX_4090", "Region: CN-HK-01"),
        *("gpuherd ssh inst_1", "", "-- ", "instance.ready at 2026-01-01 00:00:00 UTC, sent by gpuherd"),
    ]


def test_the_subject_of_a_mail_is_one_line(subtests: pytest.Subtests) -> None:
    for word in HOSTILE_WORDS:
        with subtests.test(word=word):
            text = mail_text(hostile(word))
            assert text.subject.isprintable()
            # A line of its own for each thing that is said, however many a stranger wrote.
            assert len(text.body.splitlines()) <= 14
