"""The API of instances, their operations and their jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from gpuherd.client.client_connection import AsyncPaged, Connection, decode, without_none
from gpuherd.client.client_transport import Json, path_segment
from gpuherd.client.follow_instance import (
    Listeners,
    LogSource,
    OnAnswer,
    OnProgress,
    OnTrouble,
    Until,
    follow_instance,
    instance_path,
    read_log,
    wait_for_instance,
)
from gpuherd.client.wish import Wish, body_of, create_body
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.lease_models import HealthCheckBody, LeaseBody, LeaseChanged
from gpuherd.contract.operation_models import Accepted, Job, JobStats, Operation
from gpuherd.contract.plan_models import Attempt, Plan, Why
from gpuherd.contract.webhook_models import Event

InstanceRef = str | Instance
PAGE_SIZE = 100
# Longer than the server gives an instance to become usable (GPUHERD_INSTANCE_MAX_WAIT, 20 minutes).
WAIT_S = 1800.0


def id_or_name(instance: InstanceRef) -> str:
    """Return the text by which the API finds an instance."""
    return instance if isinstance(instance, str) else instance.id


class AsyncResource:
    """One subject of the API, on the connection of a client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


class AsyncInstances(AsyncResource):
    """`herd.instances`. An instance is given by its id, its name or an `Instance`."""

    async def create(
        self,
        name: str,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        *,
        idempotency_key: str | None = None,
        **wish: Unpack[Wish],
    ) -> Instance:
        """Rent. It returns as soon as the server has written the wish down; `wait` waits until it is usable.

        The client repeats a create without an answer under the same key, so it rents one instance.
        """
        body = create_body(name, product_name, template_id, wish)
        request = self._connection.request("POST", "/api/instances", body, idempotency_key)
        return decode(Instance, await self._connection.call(request))

    async def rent_plan(self, plan: str | Plan, *, idempotency_key: str | None = None) -> Instance:
        """Rent a held plan. One plan is one instance, also if this is called again.

        It never costs more than planned. Ten minutes after the plan it is an `ApiError` (PLAN_EXPIRED).
        """
        plan_id = plan if isinstance(plan, str) else plan.plan_id
        if plan_id is None:
            raise ValueError("this plan is not held: plan with hold=True, and only what fits is held")
        key = plan_id if idempotency_key is None else idempotency_key
        request = self._connection.request("POST", "/api/instances", {"planId": plan_id}, key)
        return decode(Instance, await self._connection.call(request))

    async def get(self, instance: InstanceRef) -> Instance:
        """Return one instance as it is now."""
        return await self._connection.get(Instance, _path(instance))

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        label: tuple[str, str] | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncPaged[Instance]:
        """Iterate over all instances, newest first. Pages are fetched as they are needed."""
        pair = None if label is None else "=".join(label)
        return self._connection.pages(
            Instance, "instances", "/api/instances", status=status, name=name, label=pair, limit=page_size
        )

    async def start(
        self,
        instance: InstanceRef,
        *,
        health_check: HealthCheckBody | None = None,
        webhook_url: str | None = None,
        wait_for_capacity_s: int | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Start an exited instance. Arguments that are not given stay as they were."""
        wait = None if wait_for_capacity_s is None else {"seconds": wait_for_capacity_s}
        body = {
            "healthCheck": health_check and body_of(health_check),
            "webhookUrl": webhook_url,
            "waitForCapacity": wait,
        }
        return await self._order("start", instance, idempotency_key, without_none(body))

    async def restart(self, instance: InstanceRef, *, idempotency_key: str | None = None) -> Accepted:
        """Restart a running instance: same machine, same data. Its ports may change."""
        return await self._order("restart", instance, idempotency_key)

    async def replace(self, instance: InstanceRef, *, idempotency_key: str | None = None) -> Accepted:
        """Replace an instance by a new one of its lineage: same wish, another machine, without the data."""
        return await self._order("replace", instance, idempotency_key)

    async def stop(self, instance: InstanceRef, *, idempotency_key: str | None = None) -> Accepted:
        """Stop an instance. It keeps its data and gives up its GPU."""
        return await self._order("stop", instance, idempotency_key)

    async def delete(self, instance: InstanceRef, *, idempotency_key: str | None = None) -> Accepted:
        """Delete an instance with all its data, in any state."""
        request = self._connection.request("DELETE", _path(instance), key=idempotency_key)
        return decode(Accepted, await self._connection.call(request))

    async def set_lease(self, instance: InstanceRef, lease: LeaseBody) -> LeaseChanged:
        """Set a new end, counted from now. After the end it is a `Conflict` (LEASE_ENDED)."""
        return await self._connection.change(LeaseChanged, "POST", f"{_path(instance)}/lease", body_of(lease))

    async def remove_lease(self, instance: InstanceRef) -> LeaseChanged:
        """Remove the lease. The instance then runs until a person ends it."""
        return await self._connection.change(LeaseChanged, "DELETE", f"{_path(instance)}/lease")

    async def heartbeat(self, instance: InstanceRef) -> None:
        """Report that the instance is in use, so that silence does not end it."""
        await self._connection.call(self._connection.request("POST", f"{_path(instance)}/heartbeat"))

    async def wait(
        self,
        instance: InstanceRef,
        until: Until = "ready",
        timeout_s: float = WAIT_S,
        on_progress: OnProgress | None = None,
    ) -> Instance:
        """Return the instance when it is `until`, or raise `InstanceFailed` or `WaitTimedOut`.

        `on_progress` is called at once and then at every change of the status or its reason.
        """
        listeners = Listeners(on_progress)
        return await wait_for_instance(self._connection, id_or_name(instance), until, timeout_s, listeners)

    async def follow(
        self,
        instance: Instance,
        until: Until = "ready",
        timeout_s: float = WAIT_S,
        *,
        operation: Operation | None = None,
        on_answer: OnAnswer | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> Instance:
        """Wait for an instance that was read just now, and report every answer.

        With `operation` (a start, stop or delete) the end of the operation decides. `on_answer` is called
        with every answer, `on_trouble` whenever the server cannot be asked.
        """
        listeners = Listeners(on_answer=on_answer, on_trouble=on_trouble)
        return await follow_instance(self._connection, instance, until, timeout_s, listeners, operation)

    async def events(self, instance: InstanceRef) -> tuple[Event, ...]:
        """Return the events of an instance, oldest first."""
        return tuple(await self._connection.items(Event, "events", f"{_path(instance)}/events"))

    async def attempts(self, instance: InstanceRef) -> tuple[Attempt, ...]:
        """Return which offers were tried, and why the failed ones failed."""
        return tuple(await self._connection.items(Attempt, "attempts", f"{_path(instance)}/attempts"))

    def logs(
        self, instance: InstanceRef, *, source: LogSource = "instance", follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Return a log in pieces of bytes: what there is now (at most 1 MiB), or with `follow` all of it.

        `source="system"` is the log of the cloud for the machine: the pull of the image.
        """
        return read_log(self._connection, id_or_name(instance), source, follow)

    async def why(self, instance: InstanceRef) -> Why:
        """Return the history of an instance, what it waits for, and advice."""
        return await self._connection.get(Why, f"{_path(instance)}/attempts")

    async def _order(
        self, order: str, instance: InstanceRef, key: str | None, body: Json | None = None
    ) -> Accepted:
        request = self._connection.request("POST", f"{_path(instance)}/{order}", body or {}, key)
        return decode(Accepted, await self._connection.call(request))


class AsyncOperations(AsyncResource):
    """`herd.operations`."""

    async def get(self, operation: str | Accepted) -> Operation:
        """Return a start, restart, stop or delete with its phases."""
        operation_id = operation if isinstance(operation, str) else operation.operation_id
        return await self._connection.get(Operation, f"/api/operations/{path_segment(operation_id)}")


class AsyncJobs(AsyncResource):
    """`herd.jobs`."""

    def list(
        self,
        *,
        type: str | None = None,
        status: str | None = None,
        instance: InstanceRef | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncPaged[Job]:
        """Iterate over the jobs, newest first. `instance` must be an id or an `Instance`."""
        instance_id = None if instance is None else id_or_name(instance)
        return self._connection.pages(
            Job, "jobs", "/api/jobs", type=type, status=status, instanceId=instance_id, limit=page_size
        )

    async def get(self, job_id: str) -> Job:
        """Return one job."""
        return await self._connection.get(Job, f"/api/jobs/{path_segment(job_id)}")

    async def stats(self) -> JobStats:
        """Return the number of jobs by status and by type."""
        return await self._connection.get(JobStats, "/api/jobs/stats")

    async def retry(self, job_id: str) -> Job:
        """Give a failed job another round of tries."""
        return await self._connection.change(Job, "POST", f"/api/jobs/{path_segment(job_id)}/retry")


def _path(instance: InstanceRef) -> str:
    return instance_path(id_or_name(instance))
