"""Rotate: seal again, with the newest key, what an earlier one has sealed."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.named_secret import NamedSecret
from gpuherd.domain.errors import SecretUnreadable
from gpuherd.ports.access import AuditLog, NamedSecrets, Sealer
from gpuherd.ports.instances import Instances


@dataclass(frozen=True)
class Rotated:
    """What was done, and what still needs an earlier key."""

    resealed: int
    # By name: neither this key nor an earlier one opens them.
    unreadable: tuple[str, ...]
    # So many instances have variables that an earlier key has sealed.
    instances_left: int


@dataclass(frozen=True)
class RotateSecrets:
    """The use case. Run again, it goes on where it was."""

    secrets: NamedSecrets
    instances: Instances
    audit: AuditLog
    sealer: Sealer
    clock: Clock

    async def __call__(self, caller: Caller) -> Rotated:
        self.sealer.check()
        await self.audit.append(caller.audit_record("secret.rotate", "secrets", self.clock.now()))
        resealed, unreadable = 0, []
        for it in await self.secrets.list_all():
            if self.sealer.is_current(it.sealed):
                continue
            try:
                resealed += await self._reseal(it)
            except SecretUnreadable:
                unreadable.append(it.name)
        return Rotated(resealed, tuple(unreadable), await self._instances_left())

    async def _reseal(self, it: NamedSecret) -> bool:
        sealed = self.sealer.seal(self.sealer.unseal(it.sealed, it.about), it.about)
        # Somebody who sets it meanwhile wins.
        return await self.secrets.reseal(it, sealed)

    async def _instances_left(self) -> int:
        live = await self.instances.all_live()
        sealed = [[env.sealed for env in it.instance.wish.envs if env.sealed] for it in live]
        return sum(not all(map(self.sealer.is_current, each)) for each in sealed)
