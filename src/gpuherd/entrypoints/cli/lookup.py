"""Find one instance by what a person calls it."""

from __future__ import annotations

from gpuherd.domain.instance import ID_PREFIX
from gpuherd.entrypoints.cli.connection import ApiClient
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.follow import instance_path
from gpuherd.entrypoints.cli.listing import pages
from gpuherd.entrypoints.cli.problems import ApiProblem

# These names are taken by other routes.
_RESERVED = frozenset({"comprehensive"})


async def find(api: ApiClient, name_or_id: str) -> Details:
    """Return the details of the one instance that is called so."""
    if "/" in name_or_id or name_or_id in _RESERVED:
        # No route can carry such a name, but the list can.
        name_or_id = await _id_of(api, name_or_id)
    return Details((await api.get(instance_path(name_or_id))).body)


async def find_id(api: ApiClient, name_or_id: str) -> str:
    """Return the id of the one instance that is called so."""
    return name_or_id if name_or_id.startswith(ID_PREFIX) else (await find(api, name_or_id)).id


async def _id_of(api: ApiClient, name: str) -> str:
    listing = await pages(
        api, "/api/instances", "instances", [("name", name), ("limit", "100")], everything=True
    )
    named = [Details(row) for row in listing.rows if row.get("name") == name]
    if not named:
        raise ApiProblem("INSTANCE_NOT_FOUND", "not found", f"no instance is called {name}", status=404)
    if len(named) > 1:
        candidates = [{"id": one.id, "name": one.name, "status": one.status} for one in named]
        raise ApiProblem(
            "AMBIGUOUS_NAME",
            "the name is ambiguous",
            f"{len(named)} instances are called {name}",
            status=409,
            details={"candidates": candidates},
        )
    return named[0].id
