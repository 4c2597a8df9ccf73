"""Named secrets: store, rotate, and open them for a rental."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuherd.domain.api_key import Caller
from gpuherd.domain.errors import NotFound, SecretUnreadable
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.launch_spec import EnvVar, GivenEnv, OpenedEnv
from gpuherd.domain.secret import (
    NAME,
    NAME_RULE,
    SHARED_OWNER,
    NamedSecret,
    Secret,
)
from gpuherd.ports.access_port import AuditLog, NamedSecrets, Sealer
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Instances

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


@dataclass(frozen=True)
class Environments:
    """Seals and opens the variables of wishes. No opened value is kept anywhere."""

    sealer: Sealer
    secrets: NamedSecrets

    async def check(self, given: Sequence[GivenEnv], owner: str) -> None:
        """Refuse variables that could not be kept, or refer to a secret which the owner may not use."""
        if given:
            self.sealer.check()
        for name in {it.secret for it in given if it.secret}:
            await usable_secret(self.secrets, owner, name)

    def sealed(self, given: Sequence[GivenEnv], owner: str) -> tuple[EnvVar, ...]:
        """Return the variables as they may be stored."""
        return tuple(self._sealed(it, owner) for it in given)

    async def opened(self, instance: Instance) -> tuple[OpenedEnv, ...]:
        """Return the variables with their values.

        `SecretUnreadable` if one was sealed with another key, `NotFound` if a secret is no more.
        """
        return tuple([await self._opened(it, instance.owner) for it in instance.wish.envs])

    def _sealed(self, it: GivenEnv, owner: str) -> EnvVar:
        if it.value is None:
            return EnvVar(it.name, secret=it.secret)
        return EnvVar(it.name, self.sealer.seal(it.value, _about(owner, it.name)))

    async def _opened(self, it: EnvVar, owner: str) -> OpenedEnv:
        sealed, about = it.sealed, _about(owner, it.name)
        if it.secret:
            kept = await usable_secret(self.secrets, owner, it.secret)
            sealed, about = kept.sealed, kept.about
        try:
            return OpenedEnv(it.name, self.sealer.unseal(sealed, about), is_named_secret=bool(it.secret))
        except SecretUnreadable as error:
            raise SecretUnreadable(
                f"the variable {it.name} cannot be read: {error.message}", details={"name": it.name}
            ) from None


def _about(owner: str, name: str) -> str:
    """Return what a sealed value is bound to: copied to another owner or variable it is worth nothing.

    Not to the instance, because who takes over from it has the same variables.
    """
    return f"env/{owner}/{name}"


def named_envs(given: Sequence[GivenEnv]) -> tuple[EnvVar, ...]:
    """Return variables without their values, to show them."""
    return tuple(EnvVar(it.name, secret=it.secret) for it in given)
