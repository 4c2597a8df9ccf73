"""Users who insist: each asks again, at another replica and with the same key, until there is an answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from proof.chaos.kills.checker import GONE
from proof.chaos.kills.plan import BY_ITSELF, UserScript
from proof.chaos.kills.runner import NOTICE_S, terms_of
from proof.replicas.fleet import Fleet, Replica
from proof.replicas.plan import Nemesis, Plan
from tests.support.processes.services import KEY, Novita

# With a disk that is paid for.
WISH = {"productName": "RTX 4090 24GB", "templateId": "101", "optimize": "price", "rootfsSize": 200}
# One that stands still takes a request and never answers.
PATIENCE = aiohttp.ClientTimeout(total=3.0)
PAUSE_S = 0.1
ORDER_AGAIN_S = 5.0
NO_ANSWER = (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError)

Body = dict[str, Any]


class Failed(Exception):
    """The instance ended as failed, which is an end too."""


class Lost(Exception):
    """The database has lost the instance, and the promise that it was."""


@dataclass
class UserOutcome:
    """What one user has to tell in the end."""

    n: int
    # Every id that any answer to the create gave; there must be one.
    ids: set[str] = field(default_factory=set)
    # What the instance said when it failed.
    failed: Body | None = None
    # Whether an order to delete it was acknowledged.
    delete_accepted: bool = False
    # Ids that were given, and then were those of nothing.
    lost: set[str] = field(default_factory=set)

    @property
    def instance_id(self) -> str:
        return next(iter(self.ids), "")


@dataclass
class User:
    """One user with one instance."""

    plan: Plan
    n: int
    fleet: Fleet
    cloud: Novita
    hook: str
    session: aiohttp.ClientSession
    rng: random.Random
    lived: UserOutcome = field(init=False)
    # Where the last answer did not come from.
    _avoided: Replica | None = None

    def __post_init__(self) -> None:
        self.lived = UserOutcome(self.n)

    async def run_script(self) -> None:
        """Do with an instance what the plan says."""
        await asyncio.sleep(self.plan.begins_after_s(self.n))
        while True:
            try:
                await self._run_script(self.plan.scripts[self.n])
                if self.plan.nemesis is Nemesis.FAILOVER:
                    await self._look_again(self.plan.scripts[self.n])
            except Failed as error:
                (self.lived.failed,) = error.args
            except Lost:
                # Whoever still wants a machine asks for it again, with the same key.
                self.lived.lost |= self.lived.ids
                self.lived.ids.clear()
                continue
            return

    async def _run_script(self, script: UserScript) -> None:
        wish = {
            **WISH,
            "name": self.plan.name(self.n),
            "webhookUrl": self.hook,
            **terms_of(script, self.plan.name(self.n)),
        }
        made = await self._insist("POST", "/api/instances", "create", wish)
        self.lived.ids.add(str(made["id"]))
        # The same again elsewhere is the same instance.
        again = str((await self._insist("POST", "/api/instances", "create", wish))["id"])
        if self.plan.nemesis is Nemesis.FAILOVER and again not in self.lived.ids:
            # The first one was lost in between.
            self.lived.lost |= self.lived.ids
            self.lived.ids.clear()
        self.lived.ids.add(again)
        path = f"/api/instances/{self.lived.instance_id}"
        if script in BY_ITSELF:
            await self._until(path, lambda it: it["status"] in ("exited", "deleted"))
            return
        if script is not UserScript.DELETE_AT_ONCE:
            await self._until(path, lambda it: bool(it["usable"]))
        if script is UserScript.REPLACED:
            await self._be_replaced(path)
        if script in (UserScript.STOP, UserScript.RESTART):
            await self._insist("POST", f"{path}/stop", "stop")
            await self._until(path, lambda it: it["status"] == "exited")
        if script is UserScript.RESTART:
            await self._insist("POST", f"{path}/start", "start")
            await self._until(path, lambda it: bool(it["usable"]))
        if script in (UserScript.DELETE, UserScript.DELETE_AT_ONCE):
            await self._delete(path)

    async def _be_replaced(self, path: str) -> None:
        """Let the cloud take the machine back, soon or after a while, and wait for whoever takes over."""
        found: Body = {}
        await self._until(path, lambda it: bool(found.update(it) or it["cloudInstanceId"]))
        notice_s = self.rng.choice((NOTICE_S, 10 * NOTICE_S))
        notice = {"instanceId": found["cloudInstanceId"], "noticeSeconds": notice_s}
        await self.cloud.control("POST", "reclaim", notice)
        await self._until(path, lambda it: it["status"] == "deleted")
        name = self.plan.name(self.n)
        await self._until(f"/api/instances/{name}", lambda it: bool(it["usable"]) and it["link"] > 1)

    async def _look_again(self, script: UserScript) -> None:
        """See that it is still so when the database has lost what it will lose."""
        await self.fleet.calm.wait()
        path = f"/api/instances/{self.lived.instance_id}"
        if script in GONE:
            await self._delete(path)
        else:
            await self._until(path, lambda it: bool(it["usable"]))

    async def _delete(self, path: str) -> None:
        await self._insist("DELETE", path, "delete")
        self.lived.delete_accepted = True
        if self.plan.nemesis is not Nemesis.FAILOVER:
            await self._until(path, lambda it: it["status"] == "deleted")
            return
        # The order may have been lost, and then nobody knows of it.
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORDER_AGAIN_S):
                    return await self._until(path, lambda it: it["status"] == "deleted")
            await self._insist("DELETE", path, "delete")

    def _check_lost(self, status: int) -> None:
        if status == 404 and self.plan.nemesis is Nemesis.FAILOVER:
            raise Lost

    async def _insist(self, method: str, path: str, what: str, body: Any = None) -> Body:
        headers = {"Idempotency-Key": f"{self.plan.name(self.n)}-{what}"}
        while True:
            status, answer = await self._ask(method, path, body, headers)
            if 200 <= status < 300:
                return answer
            self._check_lost(status)
            assert status in (0, 429) or status >= 500, (method, path, status, answer)
            await asyncio.sleep(PAUSE_S)

    async def _until(self, path: str, is_so: Callable[[Body], bool]) -> None:
        while True:
            status, answer = await self._ask("GET", path)
            if status == 200:
                if answer["status"] == "failed":
                    raise Failed(answer)
                if is_so(answer):
                    return
            self._check_lost(status)
            assert status in (0, 200, 429) or status >= 500, (path, status, answer)
            await asyncio.sleep(2 * PAUSE_S)

    async def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Body]:
        """Ask any replica but the one that did not answer last; 0 stands for no answer."""
        choice = [it for it in self.fleet.replicas if it is not self._avoided]
        replica = self.rng.choice(choice)
        sent = {"Authorization": f"Bearer {KEY}", **(headers or {})}
        try:
            url = f"{replica.url}{path}"
            async with self.session.request(method, url, json=body, headers=sent, timeout=PATIENCE) as reply:
                answer = await reply.json(content_type=None)
        except NO_ANSWER:
            self._avoided = replica
            return 0, {}
        self._avoided = replica if reply.status >= 500 else None
        return reply.status, dict(answer)
