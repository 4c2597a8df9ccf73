"""Shared by commands about instances: find one, its facts, its endpoints, and whether a wait is over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.text import Text

from gpuherd.entrypoints.cli.cli_errors import CommandError, problem_report
from gpuherd.entrypoints.cli.cli_output import Row, joined, usd_an_hour
from gpuherd.entrypoints.cli.command_runner import ID_PREFIX
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerRefusal, ServerReply

Until = Literal["ready", "exited", "deleted"]

PREFIX_CHARS_MIN = 4
CANDIDATES_MAX = 10
_WHOLE_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{26}}")
_SHORT_ID = re.compile(rf"{ID_PREFIX}[0-9a-z]{{{PREFIX_CHARS_MIN},25}}")
# Other routes have these names.
_RESERVED_NAMES = frozenset({"comprehensive"})
_BILLING = {"spot": "spot", "onDemand": "on-demand", "auto": "spot or on-demand"}


def find_instance(server: ServerConnection, name_or_id: str) -> ServerReply:
    """Return the one instance with this id, this name, or an id that begins so."""
    if "/" in name_or_id or name_or_id in _RESERVED_NAMES:
        # No route can carry such a name, but a list query can.
        rows = server.rows("/api/instances", "instances", everything=True, name=name_or_id, limit=100)
        named = [row for row in rows["instances"] if row.get("name") == name_or_id]
        name_or_id = str(_single_instance(named, f"are called {name_or_id}", "AMBIGUOUS_NAME")["id"])
    try:
        return _instance(server, name_or_id)
    except ServerRefusal as refusal:
        # A name takes precedence over the beginning of an id, so that scripts never change their meaning.
        if refusal.code != "INSTANCE_NOT_FOUND" or not name_or_id.startswith(ID_PREFIX):
            raise
        if not _SHORT_ID.fullmatch(name_or_id):
            rule = f"of an id, at least {PREFIX_CHARS_MIN} characters after {ID_PREFIX} must be given"
            refusal.detail = f"{refusal.detail}; {rule}"
            raise
    rows = server.rows("/api/instances", "instances", everything=True, limit=100)
    meant = [row for row in rows["instances"] if str(row["id"]).startswith(name_or_id)]
    # Deleted instances count only if nothing else matches.
    there = [row for row in meant if row.get("status") != "deleted"]
    how = f"have an id that begins with {name_or_id}"
    return _instance(server, str(_single_instance(there or meant, how, "AMBIGUOUS_ID")["id"]))


def find_instance_id(server: ServerConnection, name_or_id: str) -> str:
    """Return the id of the one instance with this name."""
    return name_or_id if _WHOLE_ID.fullmatch(name_or_id) else str(find_instance(server, name_or_id)["id"])


def _instance(server: ServerConnection, word: str) -> ServerReply:
    instance = server.get(path_of("instances", word))
    for name in ("id", "name", "status"):
        # An answer without these fields is no instance.
        instance[name]
    return instance


def _single_instance(found: Sequence[Row], how: str, code: str) -> Row:
    if not found:
        raise CommandError.of(problem_report("INSTANCE_NOT_FOUND", "not found", f"no instances {how}", 404))
    if len(found) > 1:
        fields = ("id", "name", "status")
        candidates = [{name: row.get(name) for name in fields} for row in found[:CANDIDATES_MAX]]
        title, detail = "more than one could be meant", f"{len(found)} instances {how}"
        raise CommandError.of(problem_report(code, title, detail, 409, {"candidates": candidates}))
    return found[0]


def command_about(verb: str, instance: Row) -> str:
    """Return the command about this instance, safe to paste into a shell."""
    name = str(instance["name"])
    # A shell or our own parser could read any other text differently. The id is always safe.
    plain = name.replace("-", "").replace("_", "").replace(".", "").isalnum() and name.isascii()
    return f"gpuherd {verb} {name if plain and name[0].isalnum() else instance['id']}"


def wait_command(instance: Row, until: Until) -> str:
    """Return the command that continues to wait."""
    if until == "ready":
        return command_about("wait", instance)
    # A deleted instance loses its name, so use the id.
    base = f"gpuherd wait {instance['id']}" if until == "deleted" else command_about("wait", instance)
    return f"{base} --for {until}"


def outcome_of(instance: Row, until: Until) -> bool | None:
    """Return True if the wait has succeeded, False if it needs a new order, None otherwise.

    `ready` means usable.
    """
    status, goal = instance["status"], instance.get("goal")
    is_leaving = status in ("failed", "deleting", "deleted") or goal == "deleted"
    match until:
        case "ready":
            is_down = status == "exited" or goal == "stopped"
            return bool(instance.get("usable")) or (False if is_down or is_leaving else None)
        case "exited":
            return status == "exited" or (False if is_leaving else None)
        case "deleted":
            stays = status == "failed" and goal != "deleted"
            return status == "deleted" or (False if stays else None)


def facts_of(offer: Row) -> list[str]:
    """Return what was, or will be, rented: product, region, price."""
    count, product = offer.get("gpuNum"), offer.get("productName")
    gpus = f"{count} × {product}" if count not in (None, 1) and product else product
    price = joined(usd_an_hour(offer.get("hourlyPrice")), _BILLING.get(str(offer.get("billingMode"))))
    return [str(fact) for fact in (gpus, offer.get("region"), price) if fact]


def stock_of(offer: Row) -> str:
    """Return the stock of an offer, in the cloud's own word if it has one."""
    return str(offer.get("stock") or "yes") if offer.get("available") else "sold out"


def endpoint_lines(instance: Row) -> list[tuple[str, Text | str]]:
    """Return the endpoints as names and values."""
    named = instance.get("connectionDetails") or {}
    ways = [
        ("ssh", named.get("ssh")),
        ("jupyter", named.get("jupyter")),
        ("terminal", named.get("webTerminal")),
    ]
    ports = [
        (f"port {mapping.get('port')}", mapping.get("endpoint"))
        for mapping in instance.get("portMappings") or ()
    ]
    return [(name, str(where)) for name, where in (*ways, *ports) if where]


def status_style(status: str, *, usable: bool) -> str:
    """Return green for usable, red for a state that needs a person, yellow for progress."""
    if usable:
        return "green"
    if status == "failed":
        return "red"
    return "dim" if status in ("exited", "deleted") else "yellow"


def variables_text(envs: Mapping[str, Any] | None) -> str:
    """Return the variables of a container: their names, and which secrets they take."""
    words = []
    for name, value in (envs or {}).items():
        secret = value.get("secret") if isinstance(value, Mapping) else None
        words.append(f"{name} from the secret {secret}" if secret else f"{name}=***")
    return ", ".join(words)
