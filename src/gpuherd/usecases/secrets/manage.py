"""Manage named secrets: set one, see which there are, remove one. No value ever comes back from here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.named_secret import NAME, NAME_RULE, SHARED_OWNER, NamedSecret
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import NotFound
from gpuherd.ports.access import NamedSecrets, Sealer

SECRET_NOT_FOUND = "SECRET_NOT_FOUND"  # noqa: S105  a code


@dataclass(frozen=True)
class ManageSecrets:
    """Each key has secrets of its own, and uses those that an admin shares with all keys."""

    secrets: NamedSecrets
    sealer: Sealer
    clock: Clock

    async def put(self, name: str, value: Secret, caller: Caller, *, shared: bool = False) -> NamedSecret:
        """Keep a value under a name; what was there under it is gone. Machines that run keep the old one."""
        now = self.clock.now()
        secret = NamedSecret(_owner(caller, shared), name, "", now, now)
        secret = replace(secret, sealed=self.sealer.seal(value, secret.about))
        record = caller.audit_record("secret.set", name, now, after=_audit_text(shared))
        return await self.secrets.put(secret, record)

    async def list_of(self, caller: Caller) -> tuple[NamedSecret, ...]:
        """Return what the caller may use, by name; of two of one name its own comes first, and counts."""
        own = await self.secrets.list_of(caller.key_id)
        shared = await self.secrets.list_of(SHARED_OWNER)
        return tuple(sorted((*own, *shared), key=lambda it: (it.name, it.shared)))

    async def get(self, name: str, caller: Caller) -> NamedSecret:
        """Return the one that the caller would use; `NotFound` if there is none."""
        return await usable_secret(self.secrets, caller.key_id, name)

    async def remove(self, name: str, caller: Caller, *, shared: bool = False) -> None:
        """Forget a secret; `NotFound` if there is none."""
        record = caller.audit_record("secret.remove", name, self.clock.now(), before=_audit_text(shared))
        if not await self.secrets.remove(_owner(caller, shared), name, record):
            raise missing_secret(name)


def _owner(caller: Caller, shared: bool) -> str:
    return SHARED_OWNER if shared else caller.key_id


def _audit_text(shared: bool) -> str:
    return "shared with all keys" if shared else ""


async def usable_secret(secrets: NamedSecrets, owner: str, name: str) -> NamedSecret:
    """Return the secret that an owner means by a name: its own, else the shared one; `NotFound` if none."""
    found = await secrets.find(owner, name) or await secrets.find(SHARED_OWNER, name)
    if found is None:
        raise missing_secret(name)
    return found


def missing_secret(name: str) -> NotFound:
    """Return the error for a secret that is not there.

    A word that no secret can have as a name is not repeated: the advice is there to be pasted into a shell.
    """
    if NAME.fullmatch(name) is None:
        return NotFound(f"no secret has such a name: it {NAME_RULE}", code=SECRET_NOT_FOUND)
    return NotFound(
        f"this key has no secret {name!r}; set it with: gpuherd secrets set {name}",
        code=SECRET_NOT_FOUND,
        details={"name": name},
    )
