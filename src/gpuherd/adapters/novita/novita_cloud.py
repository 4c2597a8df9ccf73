"""Novita as a cloud: each method of the port is one call.

The modules for wire format and failures translate.
"""

from __future__ import annotations

import contextlib
import copy
import math
from functools import partial
from typing import Any, Self

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import whole
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.adapters.novita.paged_list import PAGE_SIZE, NovitaPage, PagedList
from gpuherd.adapters.novita.redaction import CallSecrets
from gpuherd.domain.cloud.machine import Listing, LogAddresses, Machine
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.template import CreateCall, Template
from gpuherd.domain.errors import CloudError, MachineGone, NotFound
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.rate_limiter import Lane
from gpuherd.resilience.ttl_cache import Cache

REGIONS_TTL_S = 300.0


class NovitaCloud:
    """The cloud port on Novita's v1 API.

    With `trust_429`, a call answered "too many" counts as not executed. Without it, such a change has an
    unknown outcome.

    Its reads have the priority of rentals; `in_lane` returns the same cloud with another priority.
    """

    def __init__(self, transport: NovitaTransport, *, clock: Clock, trust_429: bool = True) -> None:
        self._transport = transport
        self._clock = clock
        self._trust_429 = trust_429
        self._read = partial(transport.read, lane=Lane.RENTAL)
        self._regions: Cache[str, tuple[Region, ...]] = Cache(clock, REGIONS_TTL_S, 1, "regions")
        # By the id of the registry credential; None if Novita does not report the password.
        self._registry_passwords: dict[str, Secret | None] = {}
        self._machine_list = PagedList(self._machine_entry)
        self._template_list = PagedList(_template_entry, page_size=PAGE_SIZE)

    def in_lane(self, lane: Lane) -> Self:
        """Return this cloud with its reads in another lane."""
        view = copy.copy(self)
        view._read = partial(self._transport.read, lane=lane)
        # A shared load would make callers wait in another lane.
        view._regions = Cache(self._clock, REGIONS_TTL_S, 1, "regions")
        return view

    async def list_regions(self) -> tuple[Region, ...]:
        return await self._regions.get_or_load("all", self._load_regions)

    async def list_offers(self, billing_mode: BillingMode) -> tuple[Offer, ...]:
        regions = await self.list_regions()
        body = await self._read("/products", {"billingMethod": billing_mode.value})
        return novita_json.read_offers(_rows(body, "data"), regions)

    async def list_templates(self) -> tuple[Template, ...]:
        found = await self._template_list.gather(self._template_page)
        return tuple(found.items.values())

    async def get_template(self, template_id: str) -> Template:
        body = await self._read("/template", {"templateId": template_id}, about=ResourceKind.TEMPLATE)
        template = novita_json.read_template(body.get("template"))
        if template is None:
            raise novita_failures.unreadable()
        return template

    async def check_registry_auth(self, auth_id: str) -> None:
        if auth_id not in await self._learn_registry_passwords():
            raise NotFound("there is no such registry credential", code="REGISTRY_AUTH_NOT_FOUND")

    async def list_machines(self) -> Listing:
        started_at = self._clock.now()
        found = await self._machine_list.gather(self._machine_page)
        return Listing(tuple(found.items.values()), found.complete, started_at, self._clock.now())

    async def get_machine(self, cloud_id: str) -> Machine:
        params = {"instanceId": cloud_id}
        body = await self._read("/gpu/instance", params, about=ResourceKind.MACHINE)
        row = body.get("instance", body)
        await self._learn_quoted([row])
        machine = novita_json.read_machine(row, self._secrets_with)
        # Details of another machine would be worse than none.
        if machine is None or machine.cloud_id != cloud_id:
            raise novita_failures.unreadable()
        return machine

    async def get_log_addresses(self, cloud_id: str) -> LogAddresses:
        body = await self._read("/gpu/instance", {"instanceId": cloud_id}, about=ResourceKind.MACHINE)
        row = body.get("instance", body)
        # The log of another machine would be worse than none.
        if not isinstance(row, dict) or novita_json.read_id(row) != cloud_id:
            raise novita_failures.unreadable()
        return novita_json.read_log_addresses(row)

    async def create_machine(self, order: CreateCall) -> str:
        # guard: a create is no probe
        reply = await self._transport.change(
            "/gpu/instance/create",
            novita_json.create_request(order),
            may_probe=False,
            send_by_s=order.send_by_s,
            secrets=novita_json.order_secrets(order).plus(
                self._secrets_with(order.template.registry_auth_id)
            ),
        )
        error = novita_failures.failure_of_change(reply, ResourceKind.ACCOUNT, trust_429=self._trust_429)
        if error is not None:
            raise error
        cloud_id = novita_json.read_id(reply.body or {})
        if not cloud_id:
            # guard: a body without an id is no refusal
            raise novita_failures.outcome_unknown(reply)
        return cloud_id

    async def start_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command("start", cloud_id, send_by_s)

    async def stop_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command("stop", cloud_id, send_by_s)

    async def restart_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self._command("restart", cloud_id, send_by_s)

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        try:
            await self._command("delete", cloud_id, send_by_s)
        except MachineGone:
            return

    async def close(self) -> None:
        await self._transport.close()

    async def _command(self, verb: str, cloud_id: str, send_by_s: float = math.inf) -> None:
        path, body = f"/gpu/instance/{verb}", {"instanceId": cloud_id}
        reply = await self._transport.change(path, body, send_by_s=send_by_s)
        error = novita_failures.failure_of_change(reply, ResourceKind.MACHINE, trust_429=self._trust_429)
        if error is not None:
            raise error

    def _machine_entry(self, row: Any) -> tuple[str, Machine] | None:
        machine = novita_json.read_machine(row, self._secrets_with)
        return None if machine is None else (machine.cloud_id, machine)

    def _secrets_with(self, auth_id: str) -> CallSecrets:
        """Return the secrets of a pull with this registry credential, if any."""
        is_unknown = bool(auth_id) and self._registry_passwords.get(auth_id) is None
        return self._transport.account_secrets.plus(CallSecrets(has_unknown=is_unknown))

    async def _learn_registry_passwords(self) -> dict[str, Secret | None]:
        found = novita_json.read_registry_passwords(_rows(await self._read("/repository/auths"), "data"))
        # Error messages may still quote deleted credentials.
        self._registry_passwords.update(found)
        known = tuple(it for it in self._registry_passwords.values() if it is not None)
        self._transport.learn_credentials(known)
        return found

    async def _learn_quoted(self, machine_rows: list[Any]) -> None:
        """Learn the passwords that these rows may quote. Without them, their messages are not shown."""
        unknown = novita_json.quoting_auth_ids(machine_rows) - self._registry_passwords.keys()
        if not unknown:
            return
        with contextlib.suppress(CloudError):
            found = await self._learn_registry_passwords()
            # Unlisted credentials stay unknown, and are not read again.
            self._registry_passwords.update(dict.fromkeys(unknown - found.keys()))

    async def _load_regions(self) -> tuple[Region, ...]:
        regions = novita_json.read_regions(_rows(await self._read("/clusters"), "data"))
        # An empty region list is an error of the cloud and must not be cached.
        if not regions:
            raise novita_failures.unreadable()
        return regions

    async def _machine_page(self, number: int, size: int) -> NovitaPage:
        params = {"pageSize": str(size), "pageNum": str(number)}
        page = _page(await self._read("/gpu/instances", params), "instances")
        await self._learn_quoted(page.rows)
        return page

    async def _template_page(self, number: int, size: int) -> NovitaPage:
        params = {"pageSize": str(size), "pageNum": str(number)}
        return _page(await self._read("/templates", params), "template")


def _rows(body: dict[str, Any], key: str) -> list[Any]:
    rows = novita_json.rows(body, key)
    if rows is None:
        raise novita_failures.unreadable()
    return rows


def _page(body: dict[str, Any], key: str) -> NovitaPage:
    return NovitaPage(_rows(body, key), whole(body, "total"))


def _template_entry(row: Any) -> tuple[str, Template] | None:
    template = novita_json.read_template(row)
    return None if template is None else (template.template_id, template)
