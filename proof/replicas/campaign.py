"""Runs many plans against one simulated cloud, some of them side by side."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from proof.chaos.checks.host_clock import HostClock
from proof.chaos.kills.campaign import API, AUTHORIZATION
from proof.chaos.output import tell
from proof.replicas.checker import check, our_creates, our_machines
from proof.replicas.failover_checks import check_failover
from proof.replicas.failover_cluster import FailoverCluster
from proof.replicas.plan import Nemesis, Plan
from proof.replicas.postgres_cluster import PostgresCluster
from proof.replicas.recording_cloud import CreateRecordingCloud
from proof.replicas.report import Report
from proof.replicas.runner import Evidence, execute_plan

# Of runs that strike the server itself.
OWN_CLUSTERS = {Nemesis.RESTART: PostgresCluster, Nemesis.FAILOVER: FailoverCluster}


@dataclass(frozen=True)
class SharedInfrastructure:
    """What runs share: the cloud, and a database server unless it is to be restarted."""

    cloud: CreateRecordingCloud
    shared: PostgresCluster
    directory: Path

    async def run(self, plan: Plan) -> tuple[Evidence, list[str]]:
        """Play one plan and return what it broke."""
        clock = HostClock()
        async with self._cluster(plan) as cluster:
            run = await execute_plan(plan, self.cloud, cluster, self.where(plan))
        return run, clock.marked(check_failover(run) if plan.nemesis is Nemesis.FAILOVER else check(run))

    def where(self, plan: Plan) -> Path:
        return self.directory / f"{plan.nemesis}-{plan.seed}"

    @contextlib.asynccontextmanager
    async def _cluster(self, plan: Plan) -> AsyncIterator[PostgresCluster]:
        if plan.nemesis not in OWN_CLUSTERS:
            yield self.shared
            return
        async with own_cluster(OWN_CLUSTERS[plan.nemesis]) as cluster:
            yield cluster

    async def clear(self, run: Evidence) -> None:
        """Keep the account small, or every list would take longer than the last."""
        async with aiohttp.ClientSession(headers=AUTHORIZATION) as session:
            for _, machine in our_machines(run):
                if machine["alive"]:
                    await session.post(f"{self.cloud.url}{API}/delete", json={"instanceId": machine["id"]})


@contextlib.asynccontextmanager
async def own_cluster(kind: type[PostgresCluster] = PostgresCluster) -> AsyncIterator[PostgresCluster]:
    cluster = kind()
    try:
        await asyncio.to_thread(cluster.start)
        yield cluster
    finally:
        await asyncio.to_thread(cluster.remove)


@contextlib.asynccontextmanager
async def shared_infrastructure(directory: Path) -> AsyncIterator[SharedInfrastructure]:
    """Provide what every run needs, for as long as the context lasts."""
    cloud = CreateRecordingCloud(directory)
    async with own_cluster() as cluster:
        try:
            await cloud.start()
            yield SharedInfrastructure(cloud, cluster, directory)
        finally:
            await cloud.process.end()


async def run_plans(
    plans: Sequence[Plan], directory: Path, at_once: int, limit_s: float = math.inf
) -> Report:
    """Play them, as many as can be begun in time; the directory of one that broke something is kept."""
    report = Report()
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + limit_s
    slots = asyncio.Semaphore(at_once)
    async with shared_infrastructure(directory) as infrastructure, asyncio.TaskGroup() as group:

        async def one(plan: Plan) -> None:
            async with slots:
                if now_s() < end_s:
                    await _run_one(plan, infrastructure, report)

        for plan in plans:
            group.create_task(one(plan))
    return report


async def _run_one(plan: Plan, infrastructure: SharedInfrastructure, report: Report) -> None:
    label = f"{plan.nemesis} SEED={plan.seed} ({', '.join(map(str, plan.strikes))})"
    report.runs += 1
    report.requests += len(plan.scripts)
    try:
        run, broken = await infrastructure.run(plan)
    except Exception as error:
        report.break_promises(plan, [f"unended: {error!r}"])
        tell(f"{label}: no end came ({error!r}); kept in {infrastructure.where(plan)}")
        return
    report.struck += run.struck
    report.failed += sum(it.failed is not None for it in run.lived)
    report.machines += len(our_machines(run))
    report.creates += len(our_creates(run))
    report.takeovers += run.takeovers
    report.boots_s += run.boots_s
    report.break_promises(plan, broken)
    for it in broken:
        tell(f"{label}: {it}")
    if broken:
        tell(f"  kept in {infrastructure.where(plan)}")
    else:
        shutil.rmtree(infrastructure.where(plan))
    await infrastructure.clear(run)
