"""Find one instance by what a person calls it: its id, the beginning of its id, or its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuherd.domain.instance.instance import ID_PREFIX, Status
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.follow import instance_path
from gpuherd.entrypoints.cli.runtime.listing import pages
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem

PREFIX_CHARS_MIN = 4
# So many are shown of those that could be meant.
CANDIDATES_MAX = 10

_WHOLE_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{26}}")
_SHORT_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{{PREFIX_CHARS_MIN},25}}")
# These names are taken by other routes.
_RESERVED = frozenset({"comprehensive"})


async def find(api: ApiClient, name_or_id: str) -> Details:
    """Return the details of the one instance that is called so."""
    if "/" in name_or_id or name_or_id in _RESERVED:
        # No route can carry such a name, but the list can.
        name_or_id = await _id_of(api, name_or_id)
    try:
        return Details((await api.get(instance_path(name_or_id))).body)
    except ApiProblem as problem:
        # A name goes before the beginning of an id, so that what a script says never changes its meaning.
        if problem.code != "INSTANCE_NOT_FOUND" or not name_or_id.startswith(ID_PREFIX):
            raise
        if not _SHORT_ID.fullmatch(name_or_id):
            raise _with_prefix_hint(problem) from problem
    instance_id = await _id_with_prefix(api, name_or_id)
    return Details((await api.get(instance_path(instance_id))).body)


async def find_id(api: ApiClient, name_or_id: str) -> str:
    """Return the id of the one instance that is called so."""
    return name_or_id if _WHOLE_ID.fullmatch(name_or_id) else (await find(api, name_or_id)).id


async def _id_of(api: ApiClient, name: str) -> str:
    rows = await _listed(api, [("name", name)])
    return _single([row for row in rows if row.raw.get("name") == name], f"are called {name}").id


async def _id_with_prefix(api: ApiClient, prefix: str) -> str:
    """Return the id that begins so; what is deleted counts only where nothing else is meant."""
    meant = [row for row in await _listed(api, []) if row.id.startswith(prefix)]
    there = [row for row in meant if row.status != Status.DELETED]
    return _single(there or meant, f"have an id that begins with {prefix}", code="AMBIGUOUS_ID").id


async def _listed(api: ApiClient, query: Sequence[tuple[str, str]]) -> list[Details]:
    path, limit = "/api/instances", ("limit", "100")
    listing = await pages(api, path, "instances", [*query, limit], everything=True)
    return [Details(row) for row in listing.rows]


def _single(found: Sequence[Details], how: str, *, code: str = "AMBIGUOUS_NAME") -> Details:
    if not found:
        raise ApiProblem("INSTANCE_NOT_FOUND", "not found", f"no instances {how}", status=404)
    if len(found) > 1:
        candidates = [{"id": it.id, "name": it.name, "status": it.status} for it in found[:CANDIDATES_MAX]]
        raise ApiProblem(
            code,
            "more than one could be meant",
            f"{len(found)} instances {how}",
            status=409,
            details={"candidates": candidates},
        )
    return found[0]


def _with_prefix_hint(problem: ApiProblem) -> ApiProblem:
    rule = f"of an id, at least {PREFIX_CHARS_MIN} characters after {ID_PREFIX} must be given"
    return ApiProblem(
        problem.code,
        problem.title,
        f"{problem.detail}; {rule}",
        status=problem.status,
        request_id=problem.request_id,
    )
