"""What every run must have kept of its webhooks, by what the receiver got and what the database says."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

Row = Mapping[str, Any]
# The id, the headers and the body of what came, in the order in which it came.
Arrival = tuple[str, Mapping[str, str], bytes]


def webhook_violations(
    got: Sequence[Arrival], tables: Mapping[str, Sequence[Row]], secret: str
) -> Iterator[str]:
    """Tell each one that is lost, doubled, changed, forged, out of order, or about nothing."""
    stored = {it["id"]: it for it in tables["delivery"]}
    yield from _forged(got, secret)
    yield from _changed(got, stored)
    yield from _doubled(tables["delivery"])
    yield from _out_of_order(got, stored)
    yield from _about_nothing(tables)


def _forged(got: Sequence[Arrival], secret: str) -> Iterator[str]:
    verifier = Webhook(secret)
    for event_id, headers, body in got:
        try:
            verifier.verify(body, {name.lower(): value for name, value in headers.items()})
        except WebhookVerificationError as error:
            yield f"{event_id} does not verify: {error}"


def _changed(got: Sequence[Arrival], stored: Mapping[str, Row]) -> Iterator[str]:
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for event_id, _, body in got:
        bodies[event_id].add(body)
    yield from (f"{it} was sent and never committed" for it in sorted(bodies.keys() - stored.keys()))
    for event_id, it in stored.items():
        if event_id not in bodies:
            yield f"{event_id} ({it['type']}) never came"
        elif bodies[event_id] != {bytes(it["body"])}:
            yield f"{event_id} ({it['type']}) did not come as it was written down"


def _doubled(deliveries: Sequence[Row]) -> Iterator[str]:
    """One event, one id: the same webhook may come twice, but never under two names."""
    ids = Counter((it["instance_id"], it["sequence"]) for it in deliveries)
    yield from (f"{key} has {n} ids" for key, n in ids.items() if n > 1)


def _out_of_order(got: Sequence[Arrival], stored: Mapping[str, Row]) -> Iterator[str]:
    """Those that needed one try only come in the order of their events; a repeat may be overtaken."""
    first = [stored[it] for it in dict.fromkeys(event_id for event_id, _, _ in got) if it in stored]
    by_instance: dict[str, list[Row]] = defaultdict(list)
    for it in first:
        if it["tries"] == 1:
            by_instance[it["instance_id"]].append(it)
    for theirs in by_instance.values():
        for one, following in itertools.pairwise(theirs):
            if following["sequence"] < one["sequence"]:
                yield f"{one['id']} ({one['type']}) came before {following['id']} ({following['type']})"


def _about_nothing(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """The history of each instance has every number once, and each webhook has the number of its event."""
    history: dict[str, dict[int, str]] = defaultdict(dict)
    for it in tables["event"]:
        history[it["instance_id"]][it["sequence"]] = it["type"]
    for instance in tables["instance"]:
        numbers = sorted(history[instance["id"]])
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the history of {instance['name']} has gaps: {numbers}"
    for it in tables["delivery"]:
        if history[it["instance_id"]].get(it["sequence"]) != it["type"]:
            yield f"{it['id']} tells of an event that is not in the history"
