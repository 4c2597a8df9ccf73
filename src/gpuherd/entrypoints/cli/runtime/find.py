"""Find one instance by what a person calls it: its id, the beginning of its id, or its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuherd.client.client_errors import ApiError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.runtime.errors import CommandError, problem_report

ID_PREFIX = "inst_"
PREFIX_CHARS_MIN = 4
# So many are shown of those that could be meant.
CANDIDATES_MAX = 10

_WHOLE_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{26}}")
_SHORT_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{{PREFIX_CHARS_MIN},25}}")
# These names are taken by other routes.
_RESERVED = frozenset({"comprehensive"})


def find(herd: Gpuherd, name_or_id: str) -> Instance:
    """Return the one instance that is called so."""
    if "/" in name_or_id or name_or_id in _RESERVED:
        # No route can carry such a name, but the list can.
        name_or_id = _id_of(herd, name_or_id)
    try:
        return herd.instances.get(name_or_id)
    except ApiError as problem:
        # A name goes before the beginning of an id, so that what a script says never changes its meaning.
        if problem.code != "INSTANCE_NOT_FOUND" or not name_or_id.startswith(ID_PREFIX):
            raise
        if not _SHORT_ID.fullmatch(name_or_id):
            rule = f"of an id, at least {PREFIX_CHARS_MIN} characters after {ID_PREFIX} must be given"
            problem.detail = f"{problem.detail}; {rule}"
            raise
    return herd.instances.get(_id_with_prefix(herd, name_or_id))


def find_id(herd: Gpuherd, name_or_id: str) -> str:
    """Return the id of the one instance that is called so."""
    return name_or_id if _WHOLE_ID.fullmatch(name_or_id) else find(herd, name_or_id).id


def _id_of(herd: Gpuherd, name: str) -> str:
    called_so = [it for it in herd.instances.list(name=name) if it.name == name]
    return _single(called_so, f"are called {name}", "AMBIGUOUS_NAME").id


def _id_with_prefix(herd: Gpuherd, prefix: str) -> str:
    """Return the id that begins so; what is deleted counts only where nothing else is meant."""
    meant = [it for it in herd.instances.list() if it.id.startswith(prefix)]
    there = [it for it in meant if it.status != "deleted"]
    return _single(there or meant, f"have an id that begins with {prefix}", "AMBIGUOUS_ID").id


def _single(found: Sequence[Instance], how: str, code: str) -> Instance:
    if not found:
        report = problem_report("INSTANCE_NOT_FOUND", "not found", f"no instances {how}", 404)
        raise CommandError.of(report)
    if len(found) > 1:
        candidates = [{"id": it.id, "name": it.name, "status": it.status} for it in found[:CANDIDATES_MAX]]
        title, detail = "more than one could be meant", f"{len(found)} instances {how}"
        raise CommandError.of(problem_report(code, title, detail, 409, {"candidates": candidates}))
    return found[0]
