"""The log streams of the machines: everything so far, then each line as it is written."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import ClientConnectionResetError, web

from gpuherd.simulator.views.logs import LogLine, instance_log, system_log
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World

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
            # The program has started again with an empty log.
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
