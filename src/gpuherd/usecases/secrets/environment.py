"""The environment of an instance: sealed when it is accepted, opened at the moment of the create call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.domain.errors import SecretUnreadable
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.workload.envs import EnvVar, GivenEnv, OpenedEnv
from gpuherd.ports.access import Sealer


@dataclass(frozen=True)
class Environments:
    """Seals and opens the variables of wishes. No opened value is kept anywhere."""

    sealer: Sealer

    def check(self, given: Sequence[GivenEnv]) -> None:
        """Refuse variables that could not be kept."""
        if given:
            self.sealer.check()

    def sealed(self, given: Sequence[GivenEnv], owner: str) -> tuple[EnvVar, ...]:
        """Return the variables as they may be stored."""
        return tuple(self._sealed(it, owner) for it in given)

    async def opened(self, instance: Instance) -> tuple[OpenedEnv, ...]:
        """Return the variables with their values; `SecretUnreadable` if one was sealed with another key."""
        return tuple([self._opened(it, instance.owner) for it in instance.wish.envs])

    def _sealed(self, it: GivenEnv, owner: str) -> EnvVar:
        assert it.value is not None
        return EnvVar(it.name, self.sealer.seal(it.value, _about(owner, it.name)))

    def _opened(self, it: EnvVar, owner: str) -> OpenedEnv:
        try:
            return OpenedEnv(it.name, self.sealer.unseal(it.sealed, _about(owner, it.name)))
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
