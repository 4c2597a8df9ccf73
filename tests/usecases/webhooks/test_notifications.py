"""Endpoints for people: the same outbox and schedule as webhooks, told through the notifier."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from gpuherd.adapters.egress.people_notifier import ChatAndMailNotifier, SmtpMailer
from gpuherd.adapters.sql.service_tables import delivery as delivery_table
from gpuherd.domain.api_key import SYSTEM_CALLER
from gpuherd.domain.backoff import DELAYS_S
from gpuherd.domain.errors import Conflict
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState
from gpuherd.domain.webhooks.webhook_endpoint import (
    READ_BY_PEOPLE,
    EndpointKind,
    EndpointWithSecret,
    WebhookEndpoint,
)
from gpuherd.ports.instance_port import Change
from gpuherd.ports.webhook_port import DeliveryFilter, DeliveryResult
from tests.adapters.webhooks.test_smtp import STRICT
from tests.support.absent import Absent
from tests.support.builders import a_delivery, a_running_instance
from tests.support.fake_clock import FakeClock
from tests.support.herd import TAKEN, Herd
from tests.support.webhooks.mail_server import MailServer

SLACK = "https://hooks.slack.com/services/T000/B000/canary"
MAIL = "mailto:ops@example.com"
TARGETS = [
    (EndpointKind.SLACK, SLACK),
    (EndpointKind.DISCORD, "https://discord.com/api/webhooks/1/canary"),
    (EndpointKind.NTFY, "https://ntfy.sh/canary"),
    (EndpointKind.EMAIL, MAIL),
]


async def add(
    herd: Herd, kind: EndpointKind = EndpointKind.SLACK, url: str = SLACK, *events: str
) -> EndpointWithSecret:
    return await herd.add_endpoint(url, events, kind=kind)


async def rent(herd: Herd) -> None:
    await herd.launch()
    await herd.run_for(timedelta(minutes=2))


async def deliveries(herd: Herd) -> list[Delivery]:
    return [await herd.outbox.get(row.id) for row in sorted(herd.rows(delivery_table), key=lambda r: r.id)]


def told(herd: Herd) -> list[str]:
    return [json.loads(body)["type"] for _, _, body in herd.notifier.told]


def failing(category: str, status: int | None = None, wait_s: float | None = None) -> DeliveryResult:
    return DeliveryResult(False, status, category, f"it was {category}", wait_s, 0.0)


@pytest.mark.parametrize(("kind", "url"), TARGETS)
async def test_people_are_told_what_they_want_to_read_and_what_they_asked_for(
    kind: EndpointKind, url: str, herd: Herd
) -> None:
    usual = await add(herd, kind, url)
    some = await add(herd, kind, url, "instance.created")
    assert usual.endpoint.events == READ_BY_PEOPLE
    await rent(herd)
    heard = [(endpoint.id, json.loads(body)["type"]) for endpoint, _, body in herd.notifier.told]
    assert sorted(heard) == sorted(
        [(some.endpoint.id, "instance.created"), (usual.endpoint.id, "instance.ready")]
    )
    # Nothing goes out the other way, and nothing is signed.
    assert herd.receiver.tried == []
    assert not usual.secret


@pytest.mark.parametrize(("kind", "url"), TARGETS)
async def test_a_test_is_told_at_once(kind: EndpointKind, url: str, herd: Herd) -> None:
    made = await add(herd, kind, url)
    tried = await herd.send_endpoint_test(made.endpoint.id, SYSTEM_CALLER)
    assert (tried.result.accepted, told(herd)) == (True, ["webhook.test"])
    assert "canary" not in repr(tried) and "canary" not in repr(made)


@pytest.mark.parametrize(("kind", "url"), TARGETS[:3])
async def test_an_address_that_is_a_secret_is_in_the_endpoint_alone(
    kind: EndpointKind, url: str, herd: Herd
) -> None:
    made = await add(herd, kind, url)
    await rent(herd)
    await herd.remove_endpoint(made.endpoint.id)
    assert [it.state for it in await deliveries(herd)] == [DeliveryState.DELIVERED]
    for table in (herd.tables.delivery, herd.tables.job, herd.tables.audit, herd.tables.event):
        assert "canary" not in repr(herd.rows(table))


@pytest.mark.proves("N1")
async def test_one_that_fails_is_tried_on_the_schedule_of_all_webhooks(herd: Herd) -> None:
    await add(herd)
    herd.notifier.answer = failing("http_5xx", 500)
    await rent(herd)
    await herd.run_jobs_for(timedelta(seconds=DELAYS_S[1] * 1.3))
    herd.notifier.answer = TAKEN
    await herd.run_jobs_for(timedelta(hours=1))
    (one,) = await deliveries(herd)
    assert (one.state, one.tries) == (DeliveryState.DELIVERED, 4)
    # The same event each time.
    assert len({(event_id, body) for _, event_id, body in herd.notifier.told}) == 1


async def test_a_receiver_that_asks_for_time_gets_it(herd: Herd) -> None:
    await add(herd)
    herd.notifier.answer = failing("throttled", 429, wait_s=200.0)
    await herd.launch()
    while not herd.notifier.told:
        await herd.run_for(timedelta(seconds=1))
    (one,) = await deliveries(herd)
    assert one.next_at is not None and one.tried_at is not None
    assert one.next_at - one.tried_at >= timedelta(seconds=200)


async def test_a_place_that_is_gone_disables_its_endpoint_and_says_why(herd: Herd) -> None:
    made = await add(herd)
    herd.notifier.answer = DeliveryResult(False, 404, "gone", "Slack answered 404 no_service", None, 0.0)
    await rent(herd)
    found = await herd.get_endpoint(made.endpoint.id)
    assert (found.is_enabled, found.disabled_reason) == (False, "Slack answered 404 no_service")
    assert [(it.state, it.tries) for it in await deliveries(herd)] == [(DeliveryState.DEAD, 1)]


async def test_a_mail_that_is_rejected_is_given_up_and_the_endpoint_stays(herd: Herd) -> None:
    made = await add(herd, EndpointKind.EMAIL, MAIL)
    herd.notifier.answer = failing("rejected", 554)
    await rent(herd)
    (one,) = await deliveries(herd)
    assert (one.state, one.tries, one.last_status) == (DeliveryState.DEAD, 1, 554)
    assert (await herd.get_endpoint(made.endpoint.id)).is_enabled
    # By hand it goes again.
    herd.notifier.answer = TAKEN
    assert await herd.replay_since(made.endpoint.created_at, DeliveryFilter.DEAD) == 1
    await herd.run_jobs_for(timedelta(seconds=10))
    assert [it.state for it in await deliveries(herd)] == [DeliveryState.DELIVERED]


async def test_a_mail_server_that_fails_is_left_alone_for_a_while_and_others_are_not(herd: Herd) -> None:
    await add(herd, EndpointKind.EMAIL, MAIL)
    herd.notifier.answer = failing("refused")
    for _ in range(6):
        await herd.launch()
    while len(herd.notifier.told) < 5:
        await herd.run_for(timedelta(seconds=1))
    assert herd.gate.ejected_s("mailto") > 0
    assert herd.gate.ejected_s("hooks.slack.com") == 0


@pytest.mark.parametrize("category", ["smtp_5xx", "not_configured", "rejected", "blocked_target"])
async def test_an_answer_about_one_mail_says_nothing_against_the_server(category: str, herd: Herd) -> None:
    await add(herd, EndpointKind.EMAIL, MAIL)
    herd.notifier.answer = failing(category)
    for _ in range(6):
        await herd.launch()
    await herd.run_for(timedelta(minutes=2))
    assert len(herd.notifier.told) >= 6
    assert herd.gate.ejected_s("mailto") == 0


async def test_without_a_mail_server_an_endpoint_for_mail_is_refused(herd: Herd) -> None:
    herd.notifier.sends_mail = False
    with pytest.raises(Conflict, match="GPUHERD_SMTP_URL") as refused:
        await add(herd, EndpointKind.EMAIL, MAIL)
    assert refused.value.code == "EMAIL_NOT_CONFIGURED"
    assert await herd.list_endpoints() == ()


async def test_where_nothing_is_signed_there_is_no_secret_to_rotate_or_to_lose(herd: Herd) -> None:
    made = await add(herd)
    with pytest.raises(Conflict) as refused:
        await herd.rotate_endpoint(made.endpoint.id)
    assert refused.value.code == "ENDPOINT_NOT_SIGNED"
    # A row from another root key than the one that is here.
    lost = replace(made.endpoint, root="of a root that is lost")
    await herd.endpoints.change(made.endpoint, lost)
    await herd.refresh_endpoints()
    assert herd.knows_endpoint_secret(lost)
    await rent(herd)
    assert told(herd) == ["instance.ready"]


@pytest.mark.proves("N1")
async def test_a_mail_whose_answer_is_lost_comes_again_with_the_same_message_id(herd: Herd) -> None:
    await add(herd, EndpointKind.EMAIL, MAIL)
    async with MailServer(replies={".": None}) as server:
        mailer = SmtpMailer(server.server, "gpuherd@example.com", STRICT, herd.clock)
        herd.notifier.instead = ChatAndMailNotifier(Absent("egress"), herd.clock, mailer)
        await rent(herd)
        server.replies.clear()
        await herd.run_jobs_for(timedelta(hours=1))
    (one,) = await deliveries(herd)
    assert (one.state, one.log[0].outcome, one.log[-1].outcome) == (DeliveryState.DELIVERED, "unknown", "ok")
    assert len(server.mails) == one.tries > 1
    assert {str(it.message["Message-ID"]) for it in server.mails} == {f"<{one.id}@example.com>"}
    assert {it.recipient for it in server.mails} == {"ops@example.com"}


@dataclass
class OneMessageASecond:
    """A chat that takes one message a second, and says to all others when to come back."""

    clock: FakeClock
    taken: list[str] = field(default_factory=list)
    refused: int = 0
    sends_mail: bool = False
    _free_at: datetime | None = None

    async def notify(
        self, endpoint: WebhookEndpoint, event_id: str, body: bytes, now: datetime
    ) -> DeliveryResult:
        if self._free_at is not None and now < self._free_at:
            self.refused += 1
            return failing("throttled", 429, wait_s=1.0)
        self._free_at = now + timedelta(seconds=1)
        self.taken.append(event_id)
        return TAKEN


async def test_a_burst_reaches_a_chat_that_throttles_whole_and_once(herd: Herd) -> None:
    made = await add(herd)
    chat = herd.notifier.instead = OneMessageASecond(herd.clock)
    body = json.dumps({"type": "instance.ready", "data": {"sequence": 1}}).encode()
    for n in range(1, 41):
        one = a_delivery(n, url=made.endpoint.delivery_url, endpoint_id=made.endpoint.id, body=body)
        jobs = (herd.delivery_job(one),)
        await herd.instances.add(Change(a_running_instance(n), deliveries=(one,), jobs=jobs))
    await herd.run_jobs_for(timedelta(seconds=90))
    found = await deliveries(herd)
    assert {it.state for it in found} == {DeliveryState.DELIVERED}
    assert sorted(chat.taken) == sorted(it.id for it in found)
    # It is not made to refuse any: that would use up tries, and look as if its host failed.
    assert (chat.refused, {it.tries for it in found}) == (0, {1})
