"""The program on each machine, played by the simulator: not there yet, there, or broken."""

from __future__ import annotations

from html import escape

from aiohttp import web

from gpuherd.simulator.api.app import web_response
from gpuherd.simulator.api.machine_logs import LOGS, stream_log
from gpuherd.simulator.api.replies import page_reply
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.fault_injection import HANG_S
from gpuherd.simulator.faults.fault import FaultKind
from gpuherd.simulator.views.logs import LOG_PORT
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World

# The cloud's own helpers next to the program: web terminal and logs.
HELPER_PORTS = frozenset({2223, LOG_PORT})


def add_apps(app: web.Application, world: World) -> None:
    """Let `app` answer for every machine's HTTP ports, below `/_apps`."""

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
