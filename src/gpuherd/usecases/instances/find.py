"""Find: the instance that a person means by an id or by a name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuherd.domain.caller import HOUSE, Caller
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance import ID_PREFIX, Instance
from gpuherd.ports.store import Instances

_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{26}}")


def is_id(word: str) -> bool:
    """Tell whether a word is meant as an id and not as a name."""
    return _ID.fullmatch(word) is not None


def unknown(word: str) -> NotFound:
    """Return what is said of an instance that is not there."""
    return NotFound(f"there is no instance {word!r}", code="INSTANCE_NOT_FOUND")


def visible(instance: Instance, caller: Caller) -> Instance:
    """Return the instance, if this caller may know of it: to all others it is not there."""
    if not caller.may_see(instance.owner):
        raise unknown(instance.id)
    return instance


@dataclass(frozen=True)
class FindInstance:
    """By id if it looks like one, else by name; a name that several share is for the user to settle.

    Only among what the caller may see.
    """

    instances: Instances

    async def __call__(self, word: str, caller: Caller = HOUSE) -> Instance:
        if is_id(word):
            return visible(await self.instances.get(word), caller)
        return await self.named(word, caller)

    async def named(self, name: str, caller: Caller = HOUSE) -> Instance:
        """Return the one instance with this name; `Conflict` with the candidates if there are several."""
        found = await self.instances.find_named(name, caller.owner)
        if not found:
            raise unknown(name)
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} instances are called {name!r}; use the id",
                code="AMBIGUOUS_NAME",
                details={"candidates": [{"id": it.id, "status": it.status.value} for it in found]},
            )
        return found[0]
