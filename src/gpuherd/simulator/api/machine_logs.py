"""The log streams of the machines: everything so far, then each line as it is written."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import web

from gpuherd.simulator.views.logs import LogLine, instance_log, system_log
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World

LOOK_S = 0.5
LOGS = {"system": system_log, "instance": instance_log}


async def stream_log(
    world: World, machine: SimulatedMachine, name: str, request: web.Request
) -> web.StreamResponse:
    """Write until the machine is gone or nobody reads any more."""
    read = LOGS[name]
    reply = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await reply.prepare(request)
    written = 0
    while True:
        world.tick()
        lines = read(machine, world.now())
        if len(lines) < written:
            # The program has begun anew, and with it its log.
            written = 0
        if new := lines[written:]:
            await reply.write("".join(map(_line, new)).encode())
            written = len(lines)
        if machine.is_gone(world.now()):
            return reply
        await world.clock.sleep(LOOK_S)


def _line(line: LogLine) -> str:
    moment = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="seconds")
    return f"{moment} {line.text}\n"
