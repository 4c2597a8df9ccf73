"""Manage registry credentials: which there are, one more, one less. No password ever comes back from here."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.catalogue import RegistryAuthRemoved
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.images import CredentialOrder, RegistryCredential
from gpuherd.domain.errors import CloudUnavailable, Conflict, NotFound, OutcomeUnknown
from gpuherd.ports.access import AuditLog
from gpuherd.ports.cloud import RegistryCredentials
from gpuherd.usecases.cloud.catalogue import CatalogueCache

log = structlog.get_logger()

CREATED, DELETED = "registry_auth.create", "registry_auth.delete"


@dataclass(frozen=True)
class ManageRegistry:
    """The use case. Names are given once, so that a credential whose answer was lost is found by its name."""

    credentials: RegistryCredentials
    catalogue: CatalogueCache
    audit: AuditLog
    clock: Clock

    async def list_all(self) -> tuple[RegistryCredential, ...]:
        """Return them by name."""
        found = await self.credentials.list_credentials()
        return tuple(sorted(found, key=lambda it: (it.name, it.auth_id)))

    async def create(self, order: CredentialOrder, caller: Caller) -> RegistryCredential:
        """Keep a login at the cloud; `Conflict` (REGISTRY_AUTH_EXISTS) if its name is taken."""
        # guard: a name of a registry credential is given once
        if (there := await self._named(order.name)) is not None:
            raise Conflict(
                f"there is a registry credential {order.name!r} already; delete it, or choose another name",
                code="REGISTRY_AUTH_EXISTS",
                details={"id": there.auth_id},
            )
        record = caller.audit_record(CREATED, order.name, self.clock.now(), after=f"user {order.username}")
        # guard: who makes a registry credential is on record before the cloud is asked
        await self.audit.append(record)
        lost: OutcomeUnknown | None = None
        try:
            await self.credentials.create_credential(order)
        except OutcomeUnknown as unknown:
            lost = unknown
        # Novita does not always say its id.
        made = await self._named(order.name)
        if made is None:
            raise CloudUnavailable(
                "this registry credential is not listed yet; look for its name before you send it again",
                code="REGISTRY_AUTH_OUTCOME_UNKNOWN",
            ) from lost
        self.catalogue.forget_registry_auths()
        log.info("registry_auth.created", auth_id=made.auth_id, by=caller.key_id)
        return made

    async def delete(self, auth_id: str, caller: Caller) -> RegistryAuthRemoved:
        """Remove one; `NotFound` if there is none, `Conflict` (REGISTRY_AUTH_IN_USE) while it is used."""
        known = next((it for it in await self.credentials.list_credentials() if it.auth_id == auth_id), None)
        if known is None:
            raise NotFound(f"there is no registry credential {auth_id!r}", code="REGISTRY_AUTH_NOT_FOUND")
        before = f"{known.name}, user {known.username}"
        await self.audit.append(caller.audit_record(DELETED, auth_id, self.clock.now(), before))
        try:
            await self.credentials.delete_credential(auth_id)
        except NotFound:
            pass
        except OutcomeUnknown:
            # guard: a removal of a registry credential without an answer is not told as done
            if any(it.auth_id == auth_id for it in await self.credentials.list_credentials()):
                raise
        self.catalogue.forget_registry_auths()
        log.info("registry_auth.removed", auth_id=auth_id, by=caller.key_id)
        return RegistryAuthRemoved(id=auth_id, removed=True)

    async def _named(self, name: str) -> RegistryCredential | None:
        return next((it for it in await self.credentials.list_credentials() if it.name == name), None)
