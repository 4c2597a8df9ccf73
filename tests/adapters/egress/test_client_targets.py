"""Where the door does not go: a listener that must stay lonely stands behind every payload."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from tests.adapters.egress.conftest import ClientMaker
from tests.adapters.egress.doubles import LOOPBACK_OPEN, TLS, Receiver, StubResolver, get
from tests.adapters.egress.payloads import LITERAL_HOSTS, LITERALS, TRICKS

CLOSED = EgressPolicy()
PUBLIC = "93.184.216.34"


@pytest.fixture
def make_client(make_client: ClientMaker) -> ClientMaker:
    return partial(make_client, tls=TLS)


@pytest.mark.proves("F47")
async def test_no_payload_reaches_the_listener_or_the_name_server(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for url in [*LITERALS, *TRICKS]:
        with subtests.test(url=url):
            resolver = StubResolver()
            async with Receiver() as listener:
                with pytest.raises(EgressFailure) as caught:
                    await get(make_client(CLOSED, resolver), url.replace("{port}", f":{listener.port}"))
                assert caught.value.category is FailureCategory.BLOCKED_TARGET
                assert listener.connections == 0
                assert resolver.lookups == []


async def test_no_literal_host_reaches_the_listener_through_the_tcp_door(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for host in [host for host in LITERAL_HOSTS if not host.startswith("[fe80")]:
        with subtests.test(host=host):
            async with Receiver() as listener:
                with pytest.raises(EgressFailure) as caught:
                    await make_client(CLOSED).connect(host.strip("[]"), listener.port, 5.0)
                assert caught.value.category is FailureCategory.BLOCKED_TARGET
                assert listener.connections == 0


async def test_the_same_listener_is_reached_once_loopback_is_opened(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "[::ffff:127.0.0.1]",
        "localhost",
        "x.localhost",
    ]:
        with subtests.test(host=host):
            resolver = StubResolver()
            async with Receiver() as listener:
                reply = await get(make_client(LOOPBACK_OPEN, resolver), f"http://{host}:{listener.port}/")
                assert (reply.status, reply.body) == (200, b"ok")
                assert reply.address.removeprefix("::ffff:") == "127.0.0.1"
                assert listener.connections == 1
                assert resolver.lookups == []


NAMES = {
    "localhost": [],
    "LOCALHOST.": [],
    "foo.localhost": [],
    "metadata.google.internal": ["169.254.169.254"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "mixed.example.com": [PUBLIC, "127.0.0.1"],
    "mixed-the-other-way.example.com": ["127.0.0.1", PUBLIC],
    "dual.example.com": [PUBLIC, "::1"],
    "cname-to-internal.example.com": ["10.0.0.7"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "nat64.example.com": ["64:ff9b::7f00:1"],
    "scoped.example.com": ["fe80::1%eth0"],
    "our-own-host.example.com": ["127.0.1.1"],
    "redis": ["127.0.0.1"],
    "postgres": ["127.0.0.1"],
    "crowd.example.com": [f"93.184.{high}.{low}" for high in range(4) for low in range(250)],
    "garbage.example.com": ["not an address"],
}


async def test_a_name_with_one_blocked_answer_is_refused_whole(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for name in list(NAMES):
        with subtests.test(name=name):
            resolver = StubResolver({name.lower().rstrip("."): [NAMES[name]]})
            async with Receiver() as listener:
                client = make_client(CLOSED, resolver)
                for attempt in (
                    get(client, f"http://{name}:{listener.port}/"),
                    client.connect(name, listener.port, 5.0),
                ):
                    with pytest.raises(EgressFailure) as caught:
                        await attempt
                    assert caught.value.category is FailureCategory.BLOCKED_TARGET
                assert listener.connections == 0


@pytest.mark.parametrize("table", [{}, {"gone.example.com": [[]]}])
async def test_a_name_without_an_address_is_a_dns_failure(
    table: dict[str, list[list[str]]], make_client: ClientMaker
) -> None:
    client = make_client(CLOSED, StubResolver(table))
    for attempt in (get(client, "http://gone.example.com/"), client.connect("gone.example.com", 8080, 5.0)):
        with pytest.raises(EgressFailure) as caught:
            await attempt
        assert caught.value.category is FailureCategory.DNS


@pytest.mark.proves("F47")
async def test_rebinding_gets_one_lookup_and_the_judged_address(make_client: ClientMaker) -> None:
    resolver = StubResolver({"rebind.example.com": [["127.0.0.1"], ["127.0.0.2"]]})
    only_the_first = EgressPolicy.parse("127.0.0.1/32")
    async with Receiver() as judged, Receiver(host="127.0.0.2", port=judged.port) as inner:
        client = make_client(only_the_first, resolver)
        reply = await get(client, f"http://rebind.example.com:{judged.port}/")
        assert reply.address == "127.0.0.1"
        assert resolver.lookups == ["rebind.example.com"]
        assert (judged.connections, inner.connections) == (1, 0)

        with pytest.raises(EgressFailure) as caught:
            await get(client, f"http://rebind.example.com:{judged.port}/")
        assert caught.value.category is FailureCategory.BLOCKED_TARGET
        assert len(resolver.lookups) == 2
        assert (judged.connections, inner.connections) == (1, 0)


async def test_rebinding_does_not_help_against_the_tcp_door(make_client: ClientMaker) -> None:
    resolver = StubResolver({"rebind.example.com": [["127.0.0.1"], ["127.0.0.2"]]})
    async with Receiver() as judged, Receiver(host="127.0.0.2", port=judged.port) as inner:
        await make_client(EgressPolicy.parse("127.0.0.1/32"), resolver).connect(
            "rebind.example.com", judged.port, 5.0
        )
        assert resolver.lookups == ["rebind.example.com"]
        assert inner.connections == 0


async def test_an_allow_list_opens_its_own_network_and_no_other(make_client: ClientMaker) -> None:
    async with Receiver() as first, Receiver(host="127.0.0.2") as second:
        client = make_client(EgressPolicy.parse("127.0.0.2/32"))
        assert (await get(client, second.url)).status == 200
        with pytest.raises(EgressFailure):
            await get(client, first.url)
        assert first.connections == 0


async def test_a_host_that_answers_on_its_second_address_only_is_still_reached(
    make_client: ClientMaker,
) -> None:
    resolver = StubResolver({"hook.example.com": [["127.0.0.2", "127.0.0.1"]]})
    async with Receiver() as receiver:
        client = make_client(LOOPBACK_OPEN, resolver)
        reply = await get(client, f"http://hook.example.com:{receiver.port}/")
        assert reply.address == "127.0.0.1"
        assert await client.connect("hook.example.com", receiver.port, 5.0) == 0.0


async def test_parallel_requests_do_not_mix_up_their_addresses(make_client: ClientMaker) -> None:
    table = {f"h{n}.example.com": [[f"127.0.0.{n}"]] for n in range(1, 9)}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Receiver())
        others = [
            await stack.enter_async_context(Receiver(host=f"127.0.0.{n}", port=first.port))
            for n in range(2, 9)
        ]
        client = make_client(LOOPBACK_OPEN, StubResolver(table))
        replies = await asyncio.gather(*(get(client, f"http://{name}:{first.port}/") for name in table))
        assert [reply.address for reply in replies] == [f"127.0.0.{n}" for n in range(1, 9)]
        assert [receiver.connections for receiver in (first, *others)] == [1] * 8


async def test_our_own_listen_address_is_refused_under_our_own_name(make_client: ClientMaker) -> None:
    own_name = f"{socket.gethostname().lower().replace('_', '-')}.example.com"
    async with Receiver() as ourselves:
        client = make_client(CLOSED, StubResolver({own_name: [["127.0.0.1"]]}))
        with pytest.raises(EgressFailure):
            await get(client, f"http://{own_name}:{ourselves.port}/")
        assert ourselves.connections == 0


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Take a port of 127.0.0.1 at which a connection is neither taken nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = int(listener.getsockname()[1])
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is not there")
async def test_an_address_that_swallows_everything_does_not_keep_the_next_one_from_its_turn(
    make_client: ClientMaker, silent_port: int
) -> None:
    resolver = StubResolver({"two.example.com": [["127.0.0.1", "127.0.0.2"]] * 2})
    client = make_client(EgressPolicy.parse("127.0.0.0/8"), resolver)
    async with Receiver(host="127.0.0.2", port=silent_port) as receiver:
        await client.connect("two.example.com", silent_port, 20.0)
        reply = await get(client, f"http://two.example.com:{silent_port}/", timeout_s=20.0)
    assert reply.address == "127.0.0.2"
    assert receiver.connections == 2
