"""Runs many plans against one simulated cloud, some of them side by side."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp

from gpuherd.domain.instance.rent_attempt import parse_tag
from proof.chaos.checks.host_clock import HostClock
from proof.chaos.kills.checker import check, our_machines
from proof.chaos.kills.plan import Plan
from proof.chaos.kills.report import Report
from proof.chaos.kills.runner import Evidence, execute_plan
from proof.chaos.output import tell
from tests.support.processes.services import Novita

SPEED = 200.0
API = "/gpu-instance/openapi/v1/gpu/instance"
AUTHORIZATION = {"Authorization": "Bearer sk_somebody_else"}
# Machines of others, one of them with a tag that looks like ours: nobody may ever touch them.
DECOYS = ("somebodys-notebook", f"k1-0--gh1-deadbeef-{'0' * 26}-1")


@contextlib.asynccontextmanager
async def shared_cloud(directory: Path) -> AsyncIterator[Novita]:
    """Run a simulated Novita on which others have machines too."""
    novita = Novita(directory, speed=SPEED)
    await novita.process.start()
    try:
        async with asyncio.timeout(60):
            while "simulated Novita" not in novita.process.log.read_text():
                await asyncio.sleep(0.05)
        for name in DECOYS:
            await _call(novita, "create", {**DECOY_WISH, "name": name})
        yield novita
    finally:
        await novita.process.end()


DECOY_WISH = {
    "productId": "4090.16c62g",
    "clusterId": "us-ca-6",
    "ports": "8080/http",
    "gpuNum": 1,
    "rootfsSize": 60,
    "imageUrl": "docker.io/library/ubuntu:22.04",
    "kind": "gpu",
    "billingMode": "onDemand",
}


async def run_plan(plan: Plan, novita: Novita, directory: Path) -> tuple[Evidence, list[str]]:
    """Play one plan and return what it broke."""
    clock = HostClock()
    run = await execute_plan(plan, novita, directory)
    broken = check(run)
    names = {it["name"] for it in run.machines if it["alive"]}
    broken += [f"lost: somebody else's machine {it} is gone" for it in DECOYS if it not in names]
    return run, clock.marked(broken)


async def run_plans(
    plans: Sequence[Plan], directory: Path, at_once: int, limit_s: float = math.inf
) -> Report:
    """Play them, as many as can be begun in time; the directory of one that broke something is kept."""
    report = Report()
    end_s = asyncio.get_running_loop().time() + limit_s
    slots = asyncio.Semaphore(at_once)
    async with shared_cloud(directory) as novita:

        async def one(plan: Plan) -> None:
            where = directory / f"{plan.seed}-{plan.label.replace(' ', '-')}"
            async with slots:
                if asyncio.get_running_loop().time() >= end_s:
                    return
                try:
                    run, broken = await run_plan(plan, novita, where)
                except Exception as error:
                    report.add(plan, [], [f"unended: {error!r}"], [], 0)
                    tell(f"SEED={plan.seed} {plan.label}: no end came ({error!r}); kept in {where}")
                    return
            ours = our_machines(run, _installation(run, plan))
            report.add(plan, run.reached, broken, run.boots_s, len(ours))
            for it in broken:
                tell(f"SEED={plan.seed} {plan.label} ({', '.join(map(str, plan.kills))}): {it}")
            if broken:
                tell(f"  kept in {where}")
            else:
                shutil.rmtree(where)
            # The account stays small, or every list would take longer than the last.
            for _, machine in ours:
                if machine["alive"]:
                    await _call(novita, "delete", {"instanceId": machine["id"]})

        async with asyncio.TaskGroup() as group:
            for plan in plans:
                group.create_task(one(plan))
    return report


def _installation(run: Evidence, plan: Plan) -> str:
    names = {plan.name(n) for n in range(len(plan.scripts))}
    for machine in (it for it in run.machines if it["name"] not in DECOYS):
        tag = parse_tag(machine["name"])
        if tag is not None and machine["name"].partition("--")[0] in names:
            return tag.installation
    return ""


async def _call(novita: Novita, verb: str, body: dict[str, object]) -> None:
    async with aiohttp.ClientSession(headers=AUTHORIZATION) as session:
        reply = await session.post(f"{novita.url}{API}/{verb}", json=body)
        assert reply.status == 200, await reply.text()
