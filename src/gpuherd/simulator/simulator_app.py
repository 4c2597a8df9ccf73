"""Serves a world: Novita's API over HTTP or in this process, the programs on the machines, and their logs."""

from __future__ import annotations

import json
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Literal, NamedTuple

from aiohttp import ClientConnectionResetError, web

from gpuherd.simulator.account_api import (
    ACCOUNT_ROUTES,
    CATALOGUE_ROUTES,
    PREWARM_ROUTES,
    VOLUME_ROUTES,
)
from gpuherd.simulator.billing_api import BILLING_ROUTES, HOST_PATH
from gpuherd.simulator.fault_effects import HANG_S
from gpuherd.simulator.faults import ApiEndpoint, FaultKind
from gpuherd.simulator.instance_api import INSTANCE_ROUTES, Route, Values
from gpuherd.simulator.novita_shapes import LOG_PORT
from gpuherd.simulator.simulated_machine import (
    LocalAddresses,
    NovitaAddresses,
    SimulatedMachine,
    StatusChange,
)
from gpuherd.simulator.simulated_request import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.simulator_control import add_control
from gpuherd.simulator.wire_reply import (
    WireReply,
    cut,
    error_reply,
    garbage_reply,
    json_reply,
    page_reply,
    send_reply,
    web_response,
)
from gpuherd.simulator.world import World

BASE_PATH = "/gpu-instance/openapi/v1"
KEY_PREFIX = "sk_"


API_ROUTES: Mapping[str, tuple[Route, ...]] = {
    BASE_PATH: (*CATALOGUE_ROUTES, *INSTANCE_ROUTES, *ACCOUNT_ROUTES, *VOLUME_ROUTES, *PREWARM_ROUTES),
    HOST_PATH: BILLING_ROUTES,
}


ROUTES = {(it.method, base + it.path): it for base, routes in API_ROUTES.items() for it in routes}
Exchange = Callable[[str, str, str, "Mapping[str, object] | bytes"], Awaitable[WireReply]]


def exchange(world: World) -> Exchange:
    """Return the API of `world` without a socket: method, path, authorization, query or body in, a reply out.

    A lost reply raises `ConnectionCut`. A hanging call waits on the world's clock.
    """

    async def call(
        method: str, path: str, authorization: str, content: Mapping[str, object] | bytes
    ) -> WireReply:
        route = ROUTES.get((method, path))
        if route is None:
            return page_reply(404, "Not Found")
        try:
            _check_key(authorization)
            values = _read_body(content) if isinstance(content, bytes) else content
            return json_reply(await route.answer(world, values))
        except SimulatedError as error:
            return error_reply(error)
        except GarbageReply as garbage:
            return garbage_reply(garbage)

    return call


def add_api(app: web.Application, world: World) -> None:
    """Add Novita's paths to `app`."""
    call = exchange(world)

    async def handle(request: web.Request) -> web.StreamResponse:
        content = dict(request.query) if request.method == "GET" else await request.read()
        try:
            reply = await call(
                request.method, request.path, request.headers.get("Authorization", ""), content
            )
        except ConnectionCut:
            return cut(request)
        return await send_reply(request, reply)

    for method, path in ROUTES:
        app.router.add_route(method, path, handle)


def _check_key(authorization: str) -> None:
    scheme, _, key = authorization.partition(" ")
    if scheme.casefold() != "bearer" or not key.strip().startswith(KEY_PREFIX):
        raise SimulatedError(401, "UNAUTHORIZED", "invalid api key")


def _read_body(raw: bytes) -> Values:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        raise SimulatedError(400, "REQUEST", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise SimulatedError(400, "REQUEST", "the body is not a JSON object")
    return body


LAYERS = 8
STEP_S = 10.0
LINES_MAX = 10_000


class LogLine(NamedTuple):
    at: float
    text: str


def system_log(machine: SimulatedMachine, now: float) -> list[LogLine]:
    """Return each change of status, and the layers of the image as they arrive."""
    end = StatusChange(now, "")
    lines = []
    for turn, after in pairwise([*(it for it in machine.turns if it.at <= now), end]):
        lines.append(LogLine(turn.at, f"instance is {turn.status}"))
        if turn.status == "pulling":
            lines += _layers(machine, turn.at, after.at, now)
    if machine.failure is not None and machine.failure.at <= now:
        lines.append(LogLine(machine.failure.at, f"error: {machine.failure.message}"))
    return lines


def instance_log(machine: SimulatedMachine, now: float) -> list[LogLine]:
    """Return the program's log: a line when it is up, and one every ten seconds."""
    up_at = machine.app_up_at
    if up_at is None or now < up_at:
        return []
    last = machine.last("exited", now) or now
    steps = min(LINES_MAX, int(max(0.0, last - up_at) // STEP_S))
    working = (LogLine(up_at + step * STEP_S, f"step {step}") for step in range(1, steps + 1))
    return [LogLine(up_at, "the program is up"), *working]


def _layers(machine: SimulatedMachine, begin: float, end: float, now: float) -> Iterator[LogLine]:
    # The planned end of the pull is the next turn, also if it is in the future.
    planned = next((turn.at for turn in machine.turns if turn.at > begin), end)
    for layer in range(1, LAYERS + 1):
        at = begin + (planned - begin) * layer / LAYERS
        if at <= now:
            yield LogLine(at, f"pulled layer {layer} of {LAYERS} of {machine.request.image_url}")


LOOK_S = 0.5
LOGS = {"system": system_log, "instance": instance_log}


async def stream_log(
    world: World, machine: SimulatedMachine, name: str, request: web.Request
) -> web.StreamResponse:
    """Write the log until the machine is gone or the reader leaves."""
    reply = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    try:
        await reply.prepare(request)
        await _write_lines(world, machine, name, reply)
    except ClientConnectionResetError:
        pass
    return reply


async def _write_lines(world: World, machine: SimulatedMachine, name: str, reply: web.StreamResponse) -> None:
    read = LOGS[name]
    written = 0
    while True:
        world.tick()
        lines = read(machine, world.now())
        if len(lines) < written:
            # The program started again, with an empty log.
            written = 0
        if new := lines[written:]:
            await reply.write("".join(map(_line, new)).encode())
            written = len(lines)
        if machine.is_gone(world.now()):
            return
        await world.clock.sleep(LOOK_S)


def _line(line: LogLine) -> str:
    moment = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="seconds")
    return f"{moment} {line.text}\n"


# The cloud's own services beside the program: web terminal and logs.
HELPER_PORTS = frozenset({2223, LOG_PORT})


def add_apps(app: web.Application, world: World) -> None:
    """Add every machine's HTTP ports to `app`, below `/_apps`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(world, request)

    app.router.add_route("*", r"/_apps/{machine_id}/{port:\d+}", answer)
    app.router.add_route("*", r"/_apps/{machine_id}/{port:\d+}/{path:.*}", answer)


async def _answer(world: World, request: web.Request) -> web.StreamResponse:
    port = int(request.match_info["port"])
    try:
        machine = world.find(request.match_info["machine_id"])
    except SimulatedError:
        return web_response(page_reply(404, "Not Found"))
    if port == LOG_PORT and request.match_info.get("path") in LOGS:
        return await stream_log(world, machine, request.match_info["path"], request)
    if port not in _http_ports(machine):
        return web_response(page_reply(404, "Not Found"))
    call = world.call_about(ApiEndpoint.APP, machine)
    world.record.count(call)
    hang = world.faults.draw(FaultKind.HANG, call)
    if hang is not None:
        await world.clock.sleep(HANG_S if hang.seconds is None else hang.seconds)
    if world.faults.draw(FaultKind.APP_DOWN, call) or not machine.app_is_up(world.now()):
        return web_response(page_reply(502, "Bad Gateway"))
    if world.faults.draw(FaultKind.APP_ERROR_PAGE, call):
        return web_response(page_reply(200, "Bad Gateway", shown_status=502))
    return web.Response(text=_welcome(machine, port), content_type="text/html")


def _http_ports(machine: SimulatedMachine) -> set[int]:
    tools = {tool.port for tool in machine.request.tools if tool.protocol == "http"}
    ports = {port.number for port in machine.request.ports if port.protocol == "http"}
    return tools | ports | HELPER_PORTS


def _welcome(machine: SimulatedMachine, port: int) -> str:
    name, image = escape(machine.name or machine.id), escape(machine.request.image_url)
    return (
        f"<!doctype html><title>{name}</title><h1>{name} is up</h1>"
        f"<p>A simulated program on port {port}, from {image}.</p>"
    )


# Calls that hang on purpose would delay the shutdown.
SHUTDOWN_S = 0.2


Endpoints = Literal["local", "novita"]


class SimulatorServer:
    """A running simulator."""

    def __init__(self, runner: web.AppRunner, world: World, base_url: str) -> None:
        self._runner = runner
        self.world = world
        self.base_url = base_url

    async def close(self) -> None:
        await self._runner.cleanup()


def make_app(world: World) -> web.Application:
    """Return the application, for callers with their own server."""
    app = web.Application()
    add_api(app, world)
    add_apps(app, world)
    add_control(app, world)
    return app


async def start_simulator(
    world: World,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    endpoints: Endpoints = "local",
) -> SimulatorServer:
    """Serve `world`; port 0 takes any free one.

    `endpoints` decides the addresses of machines: this server, which answers for them, or Novita's names.
    """
    runner = web.AppRunner(make_app(world), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    base_url = _base_url(host, runner)
    world.addresses = LocalAddresses(base_url) if endpoints == "local" else NovitaAddresses()
    return SimulatorServer(runner, world, base_url)


def _base_url(host: str, runner: web.AppRunner) -> str:
    port = runner.addresses[0][1]
    # Clients cannot call an address that means "all interfaces".
    name = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
