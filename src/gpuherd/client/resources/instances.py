"""Rent, look, wait, start, restart, stop, delete; and what goes on in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method, following, paginated
from gpuherd.client.models.instance import (
    Accepted,
    Attempt,
    Event,
    Instance,
    Job,
    JobStats,
    LeaseChanged,
    Operation,
)
from gpuherd.client.models.plan import Plan
from gpuherd.client.models.why import Why
from gpuherd.client.paging import PageReader
from gpuherd.client.retrying import RetryingCaller
from gpuherd.client.streams.logs import LogEffects, LogSource, read_log
from gpuherd.client.transport.wire import Json, Request, get, listed, path_segment
from gpuherd.client.waiting import Listeners, OnAnswer, OnProgress, OnTrouble, Until, follow, wait_for
from gpuherd.client.wish import HealthCheck, Lease, Wish, create_body

Ref = str | Instance
PAGE = 100
# Longer than the server gives an instance to become usable (GPUHERD_INSTANCE_MAX_WAIT, 20 minutes).
WAIT_S = 1800.0


def word_of(instance: Ref) -> str:
    """Return the id or the name of what is meant."""
    return instance if isinstance(instance, str) else instance.id


def path_of(instance: Ref) -> str:
    return f"/api/instances/{path_segment(word_of(instance))}"


def create_request(
    name: str, product_name: str | Sequence[str], template_id: str | int | None, wish: Wish, key: str
) -> Request:
    """Return the request that rents; repeated with the same key it is still one instance."""
    body = create_body(name, product_name, template_id, wish)
    return Request("POST", "/api/instances", body=body, idempotency_key=key)


Order = Literal["start", "restart", "stop", "delete", "replace"]


def order_request(
    caller: RetryingCaller, what: Order, word: str, key: str | None, body: Json | None = None
) -> Request:
    """Return the request that starts, restarts, stops or deletes."""
    key = caller.new_key() if key is None else key
    if what == "delete":
        return Request("DELETE", path_of(word), idempotency_key=key)
    return Request("POST", f"{path_of(word)}/{what}", body=body or {}, idempotency_key=key)


def order(
    caller: RetryingCaller, what: Order, word: str, key: str | None, body: Json | None = None
) -> Effects[Accepted]:
    """Give an order, and return that it was written down."""
    return Accepted.of((yield from caller.call(order_request(caller, what, word, key, body))))


class InstanceMethods(Resource):
    """`herd.instances`. Wherever an instance is meant, its id, its name or an `Instance` will do."""

    @api_method
    def create(
        self,
        name: str,
        product_name: str | Sequence[str],
        template_id: str | int | None = None,
        *,
        idempotency_key: str | None = None,
        **wish: Unpack[Wish],
    ) -> Effects[Instance]:
        """Rent. It returns as soon as the server has written it down; `wait` tells when it can be used.

        A lost answer is asked for again under the same key, so it is one instance however bad the network.
        """
        key = self._caller.new_key() if idempotency_key is None else idempotency_key
        answer = yield from self._caller.call(create_request(name, product_name, template_id, wish, key))
        return Instance.of(answer)

    @api_method
    def rent_plan(self, plan: str | Plan, *, idempotency_key: str | None = None) -> Effects[Instance]:
        """Rent a plan that is held: one plan is one instance, however often it is asked for.

        It never costs more than was planned; `ApiError` (PLAN_EXPIRED) ten minutes after it was.
        """
        plan_id = plan if isinstance(plan, str) else plan.plan_id
        if plan_id is None:
            raise ValueError("this plan is not held: plan with hold=True, and only what fits is held")
        key = plan_id if idempotency_key is None else idempotency_key
        body = {"planId": plan_id}
        request = Request("POST", "/api/instances", body=body, idempotency_key=key)
        return Instance.of((yield from self._caller.call(request)))

    @api_method
    def get(self, instance: Ref) -> Effects[Instance]:
        """Return one instance as it is now."""
        return Instance.of((yield from self._caller.call(get(path_of(instance)))))

    @paginated
    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        label: tuple[str, str] | None = None,
        page_size: int = PAGE,
    ) -> PageReader[Instance]:
        """Go through all instances, newest first; pages are fetched as they are needed."""
        pair = None if label is None else "=".join(label)
        query = get("/api/instances", status=status, name=name, label=pair, limit=page_size)
        return PageReader(query, "instances", Instance.of)

    @api_method
    def start(
        self,
        instance: Ref,
        *,
        health_check: HealthCheck | None = None,
        webhook_url: str | None = None,
        wait_for_capacity_s: int | None = None,
        idempotency_key: str | None = None,
    ) -> Effects[Accepted]:
        """Start what has exited; what is not given stays as it was."""
        wait = None if wait_for_capacity_s is None else {"seconds": wait_for_capacity_s}
        given = {
            "healthCheck": health_check and health_check.body,
            "webhookUrl": webhook_url,
            "waitForCapacity": wait,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return (yield from order(self._caller, "start", word_of(instance), idempotency_key, body))

    @api_method
    def restart(self, instance: Ref, *, idempotency_key: str | None = None) -> Effects[Accepted]:
        """Restart what runs: the same machine with the same data; its ports may change."""
        return (yield from order(self._caller, "restart", word_of(instance), idempotency_key))

    @api_method
    def replace(self, instance: Ref, *, idempotency_key: str | None = None) -> Effects[Accepted]:
        """Let another instance of its lineage take over: same wish, another machine, without the data."""
        return (yield from order(self._caller, "replace", word_of(instance), idempotency_key))

    @api_method
    def stop(self, instance: Ref, *, idempotency_key: str | None = None) -> Effects[Accepted]:
        """Stop it: the data stays, the GPU does not."""
        return (yield from order(self._caller, "stop", word_of(instance), idempotency_key))

    @api_method
    def delete(self, instance: Ref, *, idempotency_key: str | None = None) -> Effects[Accepted]:
        """Delete it with all its data, in any state."""
        return (yield from order(self._caller, "delete", word_of(instance), idempotency_key))

    @api_method
    def set_lease(self, instance: Ref, lease: Lease) -> Effects[LeaseChanged]:
        """Set its end anew, counted from now; `Conflict` (LEASE_ENDED) after the end."""
        path = f"{path_of(instance)}/lease"
        return LeaseChanged.of((yield from self._caller.change("POST", path, lease.body)))

    @api_method
    def remove_lease(self, instance: Ref) -> Effects[LeaseChanged]:
        """Take its lease away: nothing but a person ends it then."""
        return LeaseChanged.of((yield from self._caller.change("DELETE", f"{path_of(instance)}/lease")))

    @api_method
    def heartbeat(self, instance: Ref) -> Effects[None]:
        """Say that it is in use, so that silence does not end it."""
        yield from self._caller.change("POST", f"{path_of(instance)}/heartbeat")

    @api_method
    def wait(
        self,
        instance: Ref,
        until: Until = "ready",
        timeout_s: float = WAIT_S,
        on_progress: OnProgress | None = None,
    ) -> Effects[Instance]:
        """Return it when it is `until`; `InstanceFailed` if it will not be, `WaitTimedOut` if not in time.

        `on_progress` is called at once and then whenever the status or its reason changes.
        """
        listeners = Listeners(on_progress)
        return (yield from wait_for(self._caller, word_of(instance), until, timeout_s, listeners))

    @api_method
    def follow(
        self,
        instance: Instance,
        until: Until = "ready",
        timeout_s: float = WAIT_S,
        *,
        operation: Operation | None = None,
        on_answer: OnAnswer | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> Effects[Instance]:
        """Wait for an instance that was read just now, for those who show how it goes.

        `operation` is the start, stop or delete that it shall be followed to the end of: what became of that
        decides. `on_answer` is called with every answer, `on_trouble` when the server cannot say how it is.
        """
        listeners = Listeners(on_answer=on_answer, on_trouble=on_trouble)
        return (yield from follow(self._caller, instance, until, timeout_s, listeners, operation))

    @api_method
    def events(self, instance: Ref) -> Effects[tuple[Event, ...]]:
        """Return what happened to it, oldest first."""
        answer = yield from self._caller.call(get(f"{path_of(instance)}/events"))
        return tuple(Event.of(it) for it in listed(answer, "events"))

    @api_method
    def attempts(self, instance: Ref) -> Effects[tuple[Attempt, ...]]:
        """Return which offers were tried, and why those that failed did."""
        answer = yield from self._caller.call(get(f"{path_of(instance)}/attempts"))
        return tuple(Attempt.of(it) for it in listed(answer, "attempts"))

    @following
    def logs(self, instance: Ref, *, source: LogSource = "instance", follow: bool = False) -> LogEffects:
        """Return a log bit by bit, as bytes: what there is now (at most 1 MiB), or with `follow` all of it.

        `source="system"` is what the cloud does for the machine: the pull of the image.
        """
        return read_log(f"{path_of(instance)}/logs", source, follow)

    @api_method
    def why(self, instance: Ref) -> Effects[Why]:
        """Return how it came to be what it is, what it waits for, and what to do about it."""
        return Why.of((yield from self._caller.call(get(f"{path_of(instance)}/attempts"))))


class OperationMethods(Resource):
    """`herd.operations`."""

    @api_method
    def get(self, operation: str | Accepted) -> Effects[Operation]:
        """Return a start, restart, stop or delete with its phases."""
        word = operation if isinstance(operation, str) else operation.operation_id
        return Operation.of((yield from self._caller.call(get(f"/api/operations/{path_segment(word)}"))))


class JobMethods(Resource):
    """`herd.jobs`."""

    @paginated
    def list(
        self,
        *,
        type: str | None = None,
        status: str | None = None,
        instance: Ref | None = None,
        page_size: int = PAGE,
    ) -> PageReader[Job]:
        """Go through the jobs, newest first; `instance` must be an id or an `Instance`."""
        instance_id = None if instance is None else word_of(instance)
        query = get("/api/jobs", type=type, status=status, instanceId=instance_id, limit=page_size)
        return PageReader(query, "jobs", Job.of)

    @api_method
    def get(self, job_id: str) -> Effects[Job]:
        """Return one job."""
        return Job.of((yield from self._caller.call(get(f"/api/jobs/{path_segment(job_id)}"))))

    @api_method
    def stats(self) -> Effects[JobStats]:
        """Count the jobs by status and by type."""
        return JobStats.of((yield from self._caller.call(get("/api/jobs/stats"))))

    @api_method
    def retry(self, job_id: str) -> Effects[Job]:
        """Give a failed job another round of tries."""
        return Job.of((yield from self._caller.change("POST", f"/api/jobs/{path_segment(job_id)}/retry")))
