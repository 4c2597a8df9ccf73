"""The environment of an instance: sealed when it is accepted, opened at the moment of the create call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.domain.errors import SecretUnreadable
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.workload.envs import EnvVar, GivenEnv, OpenedEnv
from gpuherd.ports.access import NamedSecrets, Sealer
from gpuherd.usecases.secrets.manage import usable_secret


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
