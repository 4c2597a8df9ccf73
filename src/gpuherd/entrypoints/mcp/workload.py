"""What an agent may say of variables and volumes: secrets by name only.

Whatever it says is in its transcript. What it says wrongly is not repeated, since it may be a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from gpuherd.client import AsyncGpuherd
from gpuherd.entrypoints.mcp.refusal import refusal

# As the server has it; it checks them again.
ENVS_MAX, MOUNTS_MAX = 99, 30
SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,510}")
BY_NAME = '{"VARIABLE": {"secret": NAME}} with names that list_secrets shows; a person sets their values'
ENVS_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "maxProperties": ENVS_MAX,
            "additionalProperties": {
                "type": "object",
                "properties": {"secret": {"type": "string", "pattern": f"^{SECRET_NAME.pattern}$"}},
                "required": ["secret"],
                "additionalProperties": False,
            },
        },
        {"type": "null"},
    ]
}
# Checked here and not by pydantic, whose messages quote what is wrong.
NamedEnvs = Annotated[
    Any,
    WithJsonSchema(ENVS_SCHEMA),
    Field(
        description='Variables with the values of secrets, by name: {"HF_TOKEN": {"secret": "hf"}}; see '
        "list_secrets. Values themselves are never given here."
    ),
]


class Mount(BaseModel):
    """A volume, and where it is to be."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(max_length=255)]
    mount_path: Annotated[str, Field(alias="mountPath", description="Like /data.", max_length=4095)]


def checked_envs(envs: Any) -> dict[str, dict[str, str]] | None:
    """Return variables that refer to secrets; anything else is refused without a word of it."""
    if envs is None:
        return None
    if not isinstance(envs, dict) or len(envs) > ENVS_MAX:
        raise _not_by_name("envs are not such variables")
    found = {}
    for place, (name, value) in enumerate(envs.items(), start=1):
        if not VARIABLE.fullmatch(name):
            raise _not_by_name(f"variable {place} has no name that a variable can have")
        secret = value.get("secret") if isinstance(value, dict) and value.keys() == {"secret"} else None
        if not isinstance(secret, str) or SECRET_NAME.fullmatch(secret) is None:
            raise _not_by_name(
                f"{name} does not refer to a secret by its name, and values are not taken here"
            )
        found[name] = {"secret": secret}
    return found


async def check_secrets(herd: AsyncGpuherd, envs: Mapping[str, Any] | None) -> None:
    """Refuse a name that no secret has before it is sent anywhere: it may be a value."""
    if not envs:
        return
    known = {it.name for it in await herd.secrets.list()}
    if missing := [name for name, it in envs.items() if it["secret"] not in known]:
        words = f"this key has no secret of the name that is given for {', '.join(missing)}"
        raise refusal("SECRET_NOT_FOUND", words, BY_NAME)


def checked_mounts(mounts: Sequence[Mount] | None) -> dict[str, str] | None:
    """Return paths by volumes."""
    if not mounts:
        return None
    found = {it.id: it.mount_path for it in mounts}
    if len(found) < len(mounts):
        raise refusal("INVALID_VOLUMES", "a volume is named twice", "each volume once")
    return found


def _not_by_name(words: str) -> Exception:
    return refusal("INVALID_ENVS", words, BY_NAME)
