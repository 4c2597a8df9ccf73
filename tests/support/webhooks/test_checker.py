"""The check of webhooks finds what is wrong.

Of good ones it says nothing, of each kind of bad ones what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.webhooks.checker import Arrival, webhook_violations

SECRET = "whsec_c2VjcmV0LW9mLXRoZS10ZXN0LTAxMjM0NTY3ODk="
TYPES = ("instance.created", "instance.running", "instance.ready")

Tables = dict[str, list[dict[str, Any]]]
Spoil = Callable[[list[Arrival], Tables], object]


def arrival(sequence: int, type_: str, secret: str = SECRET, instance_id: str = "inst_1") -> Arrival:
    event_id, now = f"msg_{instance_id}_{sequence}", datetime.now(UTC)
    body = json.dumps({"type": type_, "data": {"instanceId": instance_id, "sequence": sequence}}).encode()
    headers = {
        "Webhook-Id": event_id,
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": Webhook(secret).sign(event_id, now, body.decode()),
    }
    return event_id, headers, body


def good_run() -> tuple[list[Arrival], Tables]:
    got = [arrival(n, it) for n, it in enumerate(TYPES, 1)]
    about = {"instance_id": "inst_1"}
    events = [{**about, "sequence": n, "type": it} for n, it in enumerate(TYPES, 1)]
    deliveries = [
        {**it, "id": event_id, "body": body, "tries": 1}
        for it, (event_id, _, body) in zip(events, got, strict=True)
    ]
    instances = [{"id": "inst_1", "name": "job"}]
    return got, {"event": events, "delivery": deliveries, "instance": instances}


def found(spoil: Spoil) -> list[str]:
    got, tables = deepcopy(good_run())
    spoil(got, tables)
    return list(webhook_violations(got, tables, SECRET))


def test_of_good_ones_nothing_is_said() -> None:
    assert found(lambda got, tables: None) == []


SPOILT: dict[str, tuple[str, Spoil]] = {
    "lost": ("never came", lambda got, _: got.pop(1)),
    "doubled under another id": (
        "has 2 ids",
        lambda got, tables: tables["delivery"].append({**tables["delivery"][0], "id": "msg_other"}),
    ),
    "reordered": ("came before", lambda got, _: got.insert(0, got.pop(1))),
    "with other bytes": (
        "not come as it was written",
        lambda got, tables: tables["delivery"][0].update(body=b"{}"),
    ),
    "with two bodies": (
        "not come as it was written",
        lambda got, _: got.append((got[0][0], got[0][1], got[0][2] + b" ")),
    ),
    "signed by somebody else": (
        "does not verify",
        lambda got, _: got.append(arrival(1, TYPES[0], "whsec_bm90LXRoZS1zYW1lLXNlY3JldC0wMTIzNDU2Nzg5")),
    ),
    "never written down": ("never committed", lambda got, tables: tables["delivery"].pop()),
    "about another event": ("not in the history", lambda got, tables: tables["event"][2].update(type="x")),
    "with a gap in the history": ("has gaps: [1, 3]", lambda got, tables: tables["event"].pop(1)),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_wrong_is_told(what: str) -> None:
    words, spoil = SPOILT[what]
    assert any(words in it for it in found(spoil))


def overtake(got: list[Arrival], tables: Tables) -> None:
    got.append(got.pop(1))
    tables["delivery"][1].update(tries=2)


GOOD: dict[str, Spoil] = {
    "the same one comes again, later": lambda got, _: got.append(got[0]),
    "one that failed at first is overtaken": overtake,
}


@pytest.mark.parametrize("what", GOOD)
def test_what_is_promised_to_nobody_is_no_fault(what: str) -> None:
    assert found(GOOD[what]) == []


def test_instances_have_an_order_of_their_own() -> None:
    def add_another(got: list[Arrival], tables: Tables) -> None:
        one = arrival(1, TYPES[0], instance_id="inst_2")
        event = {"instance_id": "inst_2", "sequence": 1, "type": TYPES[0]}
        got.append(one)
        tables["event"].append(event)
        tables["delivery"].append({**event, "id": one[0], "body": one[2], "tries": 1})
        tables["instance"].append({"id": "inst_2", "name": "other"})

    assert found(add_another) == []
