"""List Novita's registry credentials; list, create and delete prewarm tasks."""

from __future__ import annotations

import contextlib
from typing import Any

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import (
    moment,
    parts,
    safe_text,
    text,
    whole,
)
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.adapters.novita.paged_list import PAGE_SIZE, NovitaPage, PagedList
from gpuherd.adapters.novita.redaction import CallSecrets
from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmOrder,
    PrewarmProduct,
    PrewarmQuota,
    PrewarmState,
    RegistryCredential,
)
from gpuherd.domain.errors import CloudError
from gpuherd.domain.secret import Secret
from gpuherd.resilience.rate_limiter import Lane

PREWARM_STATES = {
    "Pending": PrewarmState.PENDING,
    "Running": PrewarmState.RUNNING,
    "Succeeded": PrewarmState.SUCCEEDED,
    "Failed": PrewarmState.FAILED,
}


REASONS_MAX = 10
REASON_CHARS = 300


class NovitaImages:
    """The port `RegistryCredentials`."""

    def __init__(self, transport: NovitaTransport) -> None:
        self._transport = transport

    async def list_credentials(self) -> tuple[RegistryCredential, ...]:
        rows = novita_json.rows(await self._transport.read("/repository/auths", lane=Lane.BROWSE), "data")
        if rows is None:
            raise novita_failures.unreadable()
        # Each row contains its password in clear text; it is not read.
        found = [it for it in rows if isinstance(it, dict) and text(it, "id")]
        return tuple(
            RegistryCredential(text(it, "id"), text(it, "name"), text(it, "username")) for it in found
        )


class NovitaPrewarms:
    """The port `ImagePrewarms`."""

    def __init__(self, transport: NovitaTransport) -> None:
        self._transport = transport
        self._list = PagedList(self._entry, page_size=PAGE_SIZE)
        # By the id of the credential; None if Novita does not report the password.
        self._passwords: dict[str, Secret | None] = {}

    async def list_prewarms(self) -> tuple[Prewarm, ...]:
        found = await self._list.gather(self._page)
        if not found.complete:
            raise novita_failures.unreadable()
        return tuple(found.items.values())

    async def prewarm_quota(self) -> PrewarmQuota:
        body = await self._transport.read("/image/prewarm/quota", lane=Lane.BROWSE)
        used, limit = whole(body, "total"), whole(body, "limit")
        if used is None or limit is None:
            raise novita_failures.unreadable()
        return PrewarmQuota(used, limit, whole(body, "perImageSize") or 0)

    async def create_prewarm(self, order: PrewarmOrder) -> str:
        body: dict[str, Any] = {"imageUrl": order.image, "clusterId": order.cluster_id}
        if order.registry_auth_id:
            body["repositoryAuth"] = order.registry_auth_id
            await self._learn_passwords({order.registry_auth_id})
        if order.products:
            body["productIds"] = [it.product_id for it in order.products]
        if order.note:
            body["note"] = order.note
        reply = await self._transport.change(
            "/image/prewarm",
            body,
            may_probe=False,
            secrets=self._secrets_of(order.registry_auth_id),
        )
        prewarm_id = novita_json.read_id(reply.body or {}) if reply.is_success else ""
        if prewarm_id:
            return prewarm_id
        raise novita_failures.failure_of_change(
            reply, ResourceKind.ACCOUNT
        ) or novita_failures.outcome_unknown(reply)

    async def delete_prewarm(self, prewarm_id: str) -> None:
        reply = await self._transport.change("/image/prewarm/delete", {"ids": [prewarm_id]})
        error = novita_failures.failure_of_change(reply, ResourceKind.PREWARM)
        if error is not None:
            raise error

    async def _page(self, number: int, size: int) -> NovitaPage:
        # Only this call spells its page parameters like this.
        params = {"pageSize": str(size), "page": str(number)}
        body = await self._transport.read("/image/prewarm", params, lane=Lane.BROWSE)
        rows = novita_json.rows(body, "data")
        if rows is None:
            raise novita_failures.unreadable()
        await self._learn_passwords({text(it, "repositoryAuth") for it in rows if isinstance(it, dict)})
        return NovitaPage(rows, whole(body, "total"))

    async def _learn_passwords(self, auth_ids: set[str]) -> None:
        """Learn which ids are credentials of the account, and their passwords, which texts must not quote."""
        if not auth_ids - {""} - self._passwords.keys():
            return
        with contextlib.suppress(CloudError):
            rows = novita_json.rows(await self._transport.read("/repository/auths", lane=Lane.BROWSE), "data")
            self._passwords.update(novita_json.read_registry_passwords(rows or ()))

    def _secrets_of(self, auth_id: str) -> CallSecrets:
        password = self._passwords.get(auth_id)
        involved = CallSecrets(
            credentials=() if password is None else (password,),
            has_unknown=bool(auth_id) and password is None,
        )
        return self._transport.account_secrets.plus(involved)

    def _entry(self, row: Any) -> tuple[str, Prewarm] | None:
        if not isinstance(row, dict) or not (prewarm_id := novita_json.read_id(row)):
            return None
        auth, state = text(row, "repositoryAuth"), PREWARM_STATES.get(text(row, "state"))
        cluster_id, size_bytes = text(row, "clusterId"), whole(row, "imageSize")
        task = Prewarm(
            prewarm_id=prewarm_id,
            image=text(row, "imageUrl"),
            region=novita_json.region_code(text(row, "clusterName") or cluster_id),
            cluster_id=cluster_id,
            state=state or PrewarmState.UNKNOWN,
            # If the id is not of a credential, it may be a login itself.
            registry_auth_id=auth if auth in self._passwords else "",
            products=tuple(
                PrewarmProduct(text(it, "productId"), text(it, "productName"))
                for it in parts(row, "products")
            ),
            size_bytes=size_bytes if size_bytes and size_bytes > 0 else None,
            note=text(row, "note"),
            reasons=self._reasons(row, auth) if state is PrewarmState.FAILED else (),
            created_at=moment(row, "createTime"),
            completed_at=moment(row, "completeTime"),
        )
        return prewarm_id, task

    def _reasons(self, row: dict[str, Any], auth: str) -> tuple[str, ...]:
        """Return why a task failed. Successful tasks have text there too."""
        said = row.get("reason")
        words = [it for it in said if isinstance(it, str)] if isinstance(said, list) else []
        secrets = self._secrets_of(auth)
        return tuple(safe_text(secrets.redact(it), REASON_CHARS) for it in words[:REASONS_MAX])
