"""What runs, as the options of `up`, `plan` and `run` say it: image, variables, ports, volumes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

Image = Annotated[
    str | None,
    typer.Option("--image", help="The image to run, instead of the template's: docker.io/pytorch/pytorch:…"),
]
ContainerCommand = Annotated[
    str | None, typer.Option("--command", help="What to start in the container, instead of the template's.")
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME=VALUE",
        help="A variable of the container; NAME alone takes its value from here. May be given often.",
    ),
]
SecretEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME=SECRET",
        help="A variable with the value of a secret: HF_TOKEN=hf. See gpuherd secrets.",
    ),
]
Port = Annotated[
    list[str] | None,
    typer.Option(
        "--port", metavar="PORT/TYPE", help="A port to open: 8000/http, 22/tcp. May be given often."
    ),
]
MinCuda = Annotated[
    str | None, typer.Option("--min-cuda", metavar="VERSION", help="Only where CUDA is at least this: 12.4.")
]
RegistryAuth = Annotated[
    str | None, typer.Option("--registry-auth", metavar="ID", help="Pull with this credential of the cloud.")
]
VolumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--volume",
        metavar="ID:PATH",
        help="Mount a network volume: ID:/data. It pins the region. May be given often.",
    ),
]


def envs_of(words: Sequence[str] | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that were written as NAME=VALUE, or as NAME: those have their value from here."""
    envs = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals and name not in environ:
            raise typer.BadParameter(f"there is no variable {name!r} here", param_hint="--env")
        envs[name] = value if equals else environ[name]
    return envs


def secret_envs_of(words: Sequence[str] | None) -> dict[str, Mapping[str, str]]:
    """Return the variables that were written as NAME=SECRET; their values are with the server."""
    envs: dict[str, Mapping[str, str]] = {}
    for word in words or ():
        name, _, secret = word.partition("=")
        if not secret:
            raise typer.BadParameter(f"{word!r} is not NAME=SECRET", param_hint="--secret")
        envs[name] = {"secret": secret}
    return envs


def volumes_of(words: Sequence[str] | None) -> dict[str, str]:
    """Return the paths of volumes by their ids, from `ID:PATH`."""
    found = {}
    for word in words or ():
        volume_id, separator, path = word.partition(":")
        if not separator or not volume_id or not path or volume_id in found:
            raise typer.BadParameter("say it like ID:/data, each volume once", param_hint="--volume")
        found[volume_id] = path
    return found
