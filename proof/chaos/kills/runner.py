"""Plays a run: users who insist, a service that dies under them, and a peaceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from proof.chaos.kills.killable_server import KillableServer
from proof.chaos.kills.plan import BY_ITSELF, Plan, UserScript
from tests.support.processes.services import Novita, Receiver, receiver

# With a disk that is paid for.
WISH = {"productName": "RTX 4090 24GB", "templateId": "101", "optimize": "price", "rootfsSize": 200}
# From the last start in peace.
END_LIMIT_S = 60.0
LEASE_S = 10
# Of the simulated cloud, which is much faster than the clock.
NOTICE_S = 600
# Used up after some seconds of the one machine in it.
BUDGET: dict[str, Any] = {"amount": "0.0015", "period": "total", "atLimit": "stop", "warnPercent": []}
QUIET_LIMIT_S = 30.0
PAUSE_S = 0.05

Body = dict[str, Any]


@dataclass
class Evidence:
    """What is left of a run, for the checker."""

    plan: Plan
    directory: Path
    database: Path
    hooks: Receiver
    # Instance ids in the order of the lives; empty where none was ever given.
    instance_ids: list[str]
    # Everything that is true in the cloud, gone machines included, and when that was so.
    machines: list[Body]
    now_s: float
    said: bytes
    reached: list[bool]
    boots_s: list[float]
    # When the service took requests, after each of its starts.
    ready_at_s: list[float]
    exit_code: int
    problems: list[str] = field(default_factory=list)


async def execute_plan(plan: Plan, novita: Novita, directory: Path) -> Evidence:
    """Play a plan to its peaceful end."""
    directory.mkdir(parents=True, exist_ok=True)
    server = KillableServer(directory, novita)
    problems: list[str] = []
    ids = [""] * len(plan.scripts)
    for fault in plan.faults:
        await novita.control("POST", "faults", fault)
    async with receiver() as hooks:
        users = [
            asyncio.create_task(_run_script(server, novita, plan, n, hooks.url, ids))
            for n in range(len(plan.scripts))
        ]
        try:
            reached = [await server.run_until_killed(kill) for kill in plan.kills]
            await server.start()
            problems += await _ends(users)
            problems += await _quiet(server)
            exit_code = await server.process.end(signal.SIGTERM)
        finally:
            for user in users:
                user.cancel()
            if server.process.exit_code is None:
                await server.process.end()
        state = await novita.control("GET", "state")
    return Evidence(
        plan=plan,
        directory=directory,
        database=server.data_dir / "gpuherd.db",
        hooks=hooks,
        instance_ids=ids,
        machines=state["machines"],
        now_s=state["now"],
        said=server.process.log.read_bytes(),
        reached=reached,
        boots_s=server.boots_s,
        ready_at_s=server.ready_at_s,
        exit_code=exit_code,
        problems=problems,
    )


async def _ends(users: list[asyncio.Task[None]]) -> list[str]:
    done, waiting = await asyncio.wait(users, timeout=END_LIMIT_S)
    failed = [f"a user gave up: {it.exception()!r}" for it in done if it.exception()]
    return failed + ["a request never came to its end"] * len(waiting)


async def _quiet(server: KillableServer) -> list[str]:
    """Wait until nothing is left to do: no live job, nothing in the outbox."""
    left: tuple[int, int] = (0, 0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_LIMIT_S):
            while True:
                left = await asyncio.to_thread(_undone, server.data_dir / "gpuherd.db")
                if left == (0, 0):
                    return []
                await asyncio.sleep(PAUSE_S)
    return [f"{left[0]} jobs and {left[1]} deliveries are never done"]


def _undone(path: Path) -> tuple[int, int]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        (jobs,) = database.execute("SELECT count(*) FROM job WHERE state = 'live'").fetchone()
        (sends,) = database.execute("SELECT count(*) FROM delivery WHERE state = 'pending'").fetchone()
    return int(jobs), int(sends)


async def _run_script(
    server: KillableServer, novita: Novita, plan: Plan, n: int, hook: str, ids: list[str]
) -> None:
    """One user with one instance."""
    script, name = plan.scripts[n], plan.name(n)
    user = _User(server, asyncio.get_running_loop().time)
    wish = {**WISH, "name": name, "webhookUrl": hook, **terms_of(script, name)}
    if script is UserScript.BUDGET:
        await user.insist("POST", "/api/budgets", {**BUDGET, "name": name, "scope": {"label": {"run": name}}})
    made = await user.insist("POST", "/api/instances", wish, **{"Idempotency-Key": name})
    ids[n] = instance_id = str(made["id"])
    path = f"/api/instances/{instance_id}"
    if script in BY_ITSELF:
        # One whose time is over before it was usable is deleted, whatever was agreed.
        await user.until(path, lambda it: it["status"] in ("exited", "deleted"))
        return
    if script is not UserScript.DELETE_AT_ONCE:
        await user.until(path, lambda it: bool(it["usable"]))
    if script is UserScript.REPLACED:
        details = await user.insist("GET", path)
        notice = {"instanceId": details["cloudInstanceId"], "noticeSeconds": NOTICE_S}
        await novita.control("POST", "reclaim", notice)
        await user.until(path, lambda it: it["status"] == "deleted")
        await user.until(f"/api/instances/{name}", lambda it: bool(it["usable"]) and it["link"] > 1)
    if script in (UserScript.STOP, UserScript.RESTART):
        await user.insist("POST", f"{path}/stop")
        await user.until(path, lambda it: it["status"] == "exited")
    if script is UserScript.RESTART:
        await user.insist("POST", f"{path}/start")
        await user.until(path, lambda it: bool(it["usable"]))
    if script in (UserScript.DELETE, UserScript.DELETE_AT_ONCE):
        await user.insist("DELETE", path)
        await user.until(path, lambda it: it["status"] == "deleted")


def terms_of(script: UserScript, name: str) -> Body:
    """Return what is agreed about the end of an instance."""
    match script:
        case UserScript.LEASE | UserScript.LEASE_DELETE:
            then = "stop" if script is UserScript.LEASE else "delete"
            return {"lease": {"seconds": LEASE_S, "then": then}}
        case UserScript.BUDGET:
            return {"labels": {"run": name}}
        case UserScript.REPLACED:
            return {"onReclaim": "replace"}
        case _:
            return {}


@dataclass
class _User:
    """Asks again until there is an answer, as a client that has read our documentation."""

    server: KillableServer
    now: Callable[[], float]

    async def insist(self, method: str, path: str, body: Any = None, **headers: str) -> Body:
        unsure = False
        while True:
            try:
                status, answer = await self.server.call(method, path, body, **headers)
            except (aiohttp.ClientError, ConnectionError, ValueError):
                unsure = True
            else:
                if status < 300:
                    return dict(answer)
                if status == 409 and unsure:
                    # The answer to the first try was lost, and what it asked for was done.
                    return {}
                assert status >= 500, (method, path, status, answer)
            await asyncio.sleep(PAUSE_S)

    async def until(self, path: str, is_so: Callable[[Body], bool]) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError, ValueError):
                status, answer = await self.server.call("GET", path)
                if status == 200:
                    assert answer["status"] != "failed", answer
                    if is_so(answer):
                        return
                assert status == 200 or status >= 500, (path, status, answer)
            await asyncio.sleep(2 * PAUSE_S)
