"""The API of the account: money, volumes, images, trust in the cloud, orphans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

from gpuherd.client.client_connection import (
    Items,
    decode,
    items_of,
    tell,
    without_none,
)
from gpuherd.client.client_errors import (
    ApiError,
    ConnectionFailed,
    NotFound,
    PrewarmFailed,
    PrewarmTimedOut,
)
from gpuherd.client.client_transport import Json, get, path_segment
from gpuherd.client.instance_resources import AsyncResource
from gpuherd.client.wish import Usd
from gpuherd.contract.catalogue_models import (
    Prewarm,
    PrewarmQuota,
    PrewarmRemoved,
    RegistryAuth,
    Volume,
    VolumeRemoved,
)
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.money_models import Balance, Bill, Budget, BudgetRemoved, Costs, Leftovers
from gpuherd.contract.service_models import CloudTrust, Orphan, Orphans

Moment = date | datetime | str
BudgetScopeBody = Mapping[str, Any]

EVERYTHING: BudgetScopeBody = {"all": True}
PREWARMS = "/api/prewarms"
PREWARM_WAIT_S = 3600.0
# The server asks the cloud no more often.
PREWARM_POLL_S = 5.0
# Another replica may have listed just before the task was made.
PREWARM_LISTED_WITHIN_S = 15.0


class AsyncCosts(AsyncResource):
    """`herd.costs`."""

    async def get(
        self, since: Moment | None = None, until: Moment | None = None, *, group_by: str | None = None
    ) -> Costs:
        """Return the costs of a period, `until` excluded; without arguments of the last thirty days.

        `group_by`: instance, day, product, region, key, lineage, or `label:KEY`.
        """
        period = {"from": _moment_text(since), "to": _moment_text(until)}
        return await self._connection.get(Costs, "/api/costs", **period, groupBy=group_by)

    async def leftovers(self) -> Leftovers:
        """Return everything that still costs money, the most expensive first."""
        return await self._connection.get(Leftovers, "/api/leftovers")

    async def balance(self) -> Balance:
        """Return the balance of the account, and how long it lasts."""
        return await self._connection.get(Balance, "/api/balance")

    async def bill(self, day: date | str | None = None) -> Bill:
        """Return one day (yesterday, if none is given) by the meter and by the cloud's bill, as last read."""
        return await self._connection.get(Bill, "/api/costs/bill", day=_moment_text(day))

    async def reconcile(self, day: date | str) -> Bill:
        """Let the server read the cloud's bill of a day now, and compare it with the meter."""
        body = {"day": _moment_text(day)}
        return await self._connection.change(Bill, "POST", "/api/costs/reconcile", body)


class AsyncBudgets(AsyncResource):
    """`herd.budgets`: for admins."""

    async def list(self) -> Items[Budget]:
        """Return all budgets by name, with what is spent of each."""
        return await self._connection.items(Budget, "budgets", "/api/budgets")

    async def get(self, budget: str | Budget) -> Budget:
        """Return one budget, by its id or name."""
        return await self._connection.get(Budget, _budget_path(budget))

    async def add(
        self,
        name: str,
        amount: Usd,
        period: str = "month",
        *,
        scope: BudgetScopeBody = EVERYTHING,
        at_limit: str | None = None,
        warn_percent: Sequence[int] | None = None,
        strict: bool | None = None,
    ) -> Budget:
        """Make a budget. `scope` is `{"all": True}`, `{"key": ID}` or `{"label": {"team": "nlp"}}`.

        `at_limit`: warn, block, stop or delete.
        """
        body = _budget_body(name, amount, period, scope, at_limit, warn_percent, strict)
        return await self._connection.change(Budget, "POST", "/api/budgets", body)

    async def set(
        self,
        budget: str | Budget,
        *,
        amount: Usd | None = None,
        name: str | None = None,
        period: str | None = None,
        scope: BudgetScopeBody | None = None,
        at_limit: str | None = None,
        warn_percent: Sequence[int] | None = None,
        strict: bool | None = None,
    ) -> Budget:
        """Change what is given. A higher amount frees an exhausted budget, if it is high enough."""
        body = _budget_body(name, amount, period, scope, at_limit, warn_percent, strict)
        return await self._connection.change(Budget, "PATCH", _budget_path(budget), body)

    async def remove(self, budget: str | Budget) -> BudgetRemoved:
        """Remove a budget. The instances that it has ended stay ended."""
        return await self._connection.change(BudgetRemoved, "DELETE", _budget_path(budget))


class AsyncVolumes(AsyncResource):
    """`herd.volumes`."""

    async def list(self) -> Items[Volume]:
        """Return the account's volumes by name."""
        return await self._connection.items(Volume, "volumes", "/api/volumes")

    async def create(self, name: str, region: str, size_gb: int) -> Volume:
        """Make a volume. It costs money until it is deleted. `Conflict` (VOLUME_EXISTS) if its name is taken.

        The server looks for it by its name after a lost answer, so one call makes one volume.
        """
        body = {"name": name, "region": region, "sizeGb": size_gb}
        return await self._connection.change(Volume, "POST", "/api/volumes", body)

    async def delete(self, volume: str | Volume) -> VolumeRemoved:
        """Delete a volume with all its data. `Conflict` (VOLUME_IN_USE) while a machine uses it."""
        volume_id = volume if isinstance(volume, str) else volume.id
        return await self._connection.change(
            VolumeRemoved, "DELETE", f"/api/volumes/{path_segment(volume_id)}"
        )


class AsyncRegistry(AsyncResource):
    """`herd.registry`: logins to registries, which the cloud keeps."""

    async def list(self) -> Items[RegistryAuth]:
        """Return the account's registry credentials by name, without passwords."""
        return await self._connection.items(RegistryAuth, "registryAuths", "/api/registry-auths")


class AsyncPrewarms(AsyncResource):
    """`herd.prewarms`: an image is pulled into a region before a machine needs it."""

    async def list(self, *, state: str | None = None, region: str | None = None) -> Items[Prewarm]:
        """Return the account's tasks, newest first; with arguments only those in a state or region."""
        return await self._connection.items(Prewarm, "prewarms", PREWARMS, state=state, region=region)

    async def quota(self) -> PrewarmQuota:
        """Return the number of tasks, its limit, and the largest size of an image."""
        reply = await self._connection.call(get(PREWARMS))
        return decode(PrewarmQuota, reply.get("quota"))

    async def create(
        self,
        image_url: str,
        region: str,
        *,
        registry_auth_id: str | None = None,
        products: Sequence[str] | None = None,
        note: str | None = None,
    ) -> Prewarm:
        """Let the cloud pull an image. `Conflict` (PREWARM_EXISTS, PREWARM_QUOTA_EXCEEDED) if it refuses.

        Without `products` (ids or names) it is for the whole region. The server looks for the task after a
        lost answer, so one call makes one task.
        """
        body = {
            "imageUrl": image_url,
            "region": region,
            "registryAuthId": registry_auth_id,
            "products": None if products is None else [*products],
            "note": note,
        }
        return await self._connection.change(Prewarm, "POST", PREWARMS, without_none(body))

    async def wait(
        self,
        prewarm: str | Prewarm,
        timeout_s: float = PREWARM_WAIT_S,
        on_progress: Callable[[Prewarm], object] | None = None,
    ) -> Prewarm:
        """Return the task when it has succeeded, or raise `PrewarmFailed` or `PrewarmTimedOut`.

        `on_progress` is called at once and then at every change of the state.
        """
        clock, prewarm_id = self._connection.clock, _prewarm_id(prewarm)
        began_at = clock.monotonic()
        seen: Prewarm | None = None
        while True:
            failure: ApiError | ConnectionFailed | None = None
            try:
                task = await self._find(prewarm_id)
            except (ApiError, ConnectionFailed) as error:
                failure = error
            else:
                if seen is None or seen.state != task.state:
                    await tell(on_progress, task)
                seen = task
            spent_s = clock.monotonic() - began_at
            if seen is not None and seen.state == "succeeded":
                return seen
            if seen is not None and seen.state == "failed":
                raise PrewarmFailed(seen)
            if failure is not None and not _may_pass(failure, spent_s if seen is None else math.inf):
                raise failure
            if spent_s >= timeout_s:
                raise PrewarmTimedOut(prewarm_id, seen, timeout_s, str(failure or ""))
            await clock.sleep(min(PREWARM_POLL_S, timeout_s - spent_s))

    async def delete(self, prewarm: str | Prewarm) -> PrewarmRemoved:
        """Delete a task, which makes room for another. Running machines are not touched."""
        path = f"{PREWARMS}/{path_segment(_prewarm_id(prewarm))}"
        return await self._connection.change(PrewarmRemoved, "DELETE", path)

    async def _find(self, prewarm_id: str) -> Prewarm:
        for task in await self.list():
            if task.id == prewarm_id:
                return task
        raise NotFound(404, "PREWARM_NOT_FOUND", f"there is no prewarm task {prewarm_id}")


class AsyncCloud(AsyncResource):
    """`herd.cloud`: why gpuherd does not trust the cloud's lists, and the answers of an admin."""

    async def get(self) -> CloudTrust:
        """Return what gpuherd does not trust, with the reasons."""
        return await self._connection.get(CloudTrust, "/api/cloud")

    async def confirm_account(self) -> CloudTrust:
        """Confirm that the key belongs to the account of the machines."""
        return await self._connection.change(CloudTrust, "POST", "/api/cloud/confirm-account")

    async def confirm_loss(self) -> CloudTrust:
        """Confirm that the missing machines are gone."""
        return await self._connection.change(CloudTrust, "POST", "/api/cloud/confirm-loss")


class AsyncOrphans(AsyncResource):
    """`herd.orphans`: machines on the account that no instance has."""

    async def list(self, verdict: Literal["surplus", "unrecorded", "foreign"] | None = None) -> Orphans:
        """Return all orphans, with their costs."""
        return await self._connection.get(Orphans, "/api/orphans", verdict=verdict)

    async def get(self, orphan: str | Orphan) -> Orphan:
        """Return one orphan, by the cloud's id."""
        return await self._connection.get(Orphan, _orphan_path(orphan))

    async def adopt(self, orphan: str | Orphan) -> Instance:
        """Make it an instance."""
        return await self._connection.change(Instance, "POST", f"{_orphan_path(orphan)}/adopt")

    async def stop(self, orphan: str | Orphan) -> Orphan:
        """Stop it. Its disk stays."""
        return await self._connection.change(Orphan, "POST", f"{_orphan_path(orphan)}/stop")

    async def delete(self, orphan: str | Orphan) -> Orphan:
        """Remove it with all its data."""
        return await self._connection.change(Orphan, "POST", f"{_orphan_path(orphan)}/delete")

    async def resume(self) -> Items[Orphan]:
        """Release the brake. Return the orphans that it held back and that gpuherd deletes now."""
        reply = await self._connection.call(self._connection.request("POST", "/api/orphans/resume"))
        return items_of(Orphan, "released", reply)


def _moment_text(moment: Moment | None) -> str | None:
    if isinstance(moment, datetime):
        # A time without a zone is local time, as everywhere in Python.
        return moment.astimezone().isoformat()
    return moment.isoformat() if isinstance(moment, date) else moment


def _budget_path(budget: str | Budget) -> str:
    return f"/api/budgets/{path_segment(budget.id if isinstance(budget, Budget) else budget)}"


def _budget_body(
    name: str | None,
    amount: Usd | None,
    period: str | None,
    scope: BudgetScopeBody | None,
    at_limit: str | None,
    warn_percent: Sequence[int] | None,
    strict: bool | None,
) -> Json:
    body = {
        "name": name,
        "amount": None if amount is None else str(amount),
        "period": period,
        "scope": None if scope is None else dict(scope),
        "atLimit": at_limit,
        "warnPercent": None if warn_percent is None else [*warn_percent],
        "strict": strict,
    }
    return without_none(body)


def _prewarm_id(prewarm: str | Prewarm) -> str:
    return prewarm if isinstance(prewarm, str) else prewarm.id


def _may_pass(failure: ApiError | ConnectionFailed, spent_s: float) -> bool:
    """Return True for an outage, and for a new task that the server does not list yet."""
    if isinstance(failure, NotFound):
        return spent_s < PREWARM_LISTED_WITHIN_S
    return isinstance(failure, ConnectionFailed) or failure.is_temporary


def _orphan_path(orphan: str | Orphan) -> str:
    return f"/api/orphans/{path_segment(orphan if isinstance(orphan, str) else orphan.cloud_id)}"
