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
from gpuherd.ports.access_port import NamedSecrets, Sealer
from gpuherd.usecases.services import Services

SECRET_NOT_FOUND = "SECRET_NOT_FOUND"  # noqa: S105  a code


async def put_secret(
    services: Services, name: str, value: Secret, caller: Caller, *, shared: bool = False
) -> NamedSecret:
    """Store a value under a name, in place of an earlier one. Machines that run keep the earlier value.

    Each key has secrets of its own, and may use those that an admin shares with all keys.
    """
    now = services.clock.now()
    secret = NamedSecret(_owner(caller, shared), name, "", now, now)
    secret = replace(secret, sealed=services.sealer.seal(value, secret.about))
    record = caller.audit_record("secret.set", name, now, after=_audit_text(shared))
    return await services.stores.secrets.put(secret, record)


async def read_secrets(services: Services, caller: Caller) -> tuple[NamedSecret, ...]:
    """Return the secrets that the caller may use, by name. Of two with one name, the caller's own comes first
    and counts."""
    own = await services.stores.secrets.list_of(caller.key_id)
    shared = await services.stores.secrets.list_of(SHARED_OWNER)
    return tuple(sorted((*own, *shared), key=lambda it: (it.name, it.shared)))


async def read_secret(services: Services, name: str, caller: Caller) -> NamedSecret:
    """Return the secret that the caller means by this name; `NotFound` if there is none."""
    return await usable_secret(services.stores.secrets, caller.key_id, name)


async def remove_secret(services: Services, name: str, caller: Caller, *, shared: bool = False) -> None:
    """Remove a secret; `NotFound` if there is none."""
    record = caller.audit_record("secret.remove", name, services.clock.now(), before=_audit_text(shared))
    if not await services.stores.secrets.remove(_owner(caller, shared), name, record):
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
    """Return the error for a secret that does not exist.

    An impossible name is not repeated, because users paste the advice into a shell.
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
    """What a rotation did, and what still needs an earlier key."""

    resealed: int
    # Names of secrets that neither this key nor an earlier one opens.
    unreadable: tuple[str, ...]
    # How many instances have variables that an earlier key has sealed.
    instances_left: int


async def rotate_secrets(services: Services, caller: Caller) -> Rotated:
    """Seal all secrets with the current key. A second run continues where the first one ended."""
    services.sealer.check()
    await services.stores.audit.append(caller.audit_record("secret.rotate", "secrets", services.clock.now()))
    resealed, unreadable = 0, []
    for it in await services.stores.secrets.list_all():
        if services.sealer.is_current(it.sealed):
            continue
        try:
            resealed += await _reseal(services, it)
        except SecretUnreadable:
            unreadable.append(it.name)
    return Rotated(resealed, tuple(unreadable), await _instances_left(services))


async def _reseal(services: Services, it: NamedSecret) -> bool:
    sealed = services.sealer.seal(services.sealer.unseal(it.sealed, it.about), it.about)
    # A value that is set meanwhile wins.
    return await services.stores.secrets.reseal(it, sealed)


async def _instances_left(services: Services) -> int:
    live = await services.stores.instances.all_live()
    sealed = [[env.sealed for env in it.instance.wish.envs if env.sealed] for it in live]
    return sum(not all(map(services.sealer.is_current, each)) for each in sealed)


@dataclass(frozen=True)
class Environments:
    """Seals and opens the variables of launch specs. No opened value is kept."""

    sealer: Sealer
    secrets: NamedSecrets

    async def check(self, given: Sequence[GivenEnv], owner: str) -> None:
        """Reject variables that cannot be sealed, or name a secret that the owner may not use."""
        if given:
            self.sealer.check()
        for name in {it.secret for it in given if it.secret}:
            await usable_secret(self.secrets, owner, name)

    def sealed(self, given: Sequence[GivenEnv], owner: str) -> tuple[EnvVar, ...]:
        """Return the variables in the form that is stored."""
        return tuple(self._sealed(it, owner) for it in given)

    async def opened(self, instance: Instance) -> tuple[OpenedEnv, ...]:
        """Return the variables with their values.

        `SecretUnreadable` if another key has sealed a value, `NotFound` if a secret was removed.
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
    """Return what a sealed value is bound to: it cannot be opened for another owner or variable.

    It is not bound to the instance, because a replacement has the same variables.
    """
    return f"env/{owner}/{name}"


def named_envs(given: Sequence[GivenEnv]) -> tuple[EnvVar, ...]:
    """Return variables without their values, to show them."""
    return tuple(EnvVar(it.name, secret=it.secret) for it in given)
