"""The commands about access: API keys, secrets, the audit log."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

from gpuherd.domain import audit as audit_chain
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Ago, Column, ListTable, Output, Row, moment_of, safe, text_of
from gpuherd.entrypoints.cli.command_runner import (
    ALL_OPTION,
    LIMIT_OPTION,
    Duration,
    group_with_default,
    read_secret,
    server_command,
)
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerReply, UnexpectedReply
from gpuherd.entrypoints.durations import time_ahead

# --- keys ---

_TERM = re.compile(r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SIGNED_WITH = {
    "key": "its own secret",
    "common": "WEBHOOK_SECRET, which all keys without a secret of their own share",
    "nothing": "nothing",
}
_KEY_STYLES = {"active": "green", "expired": "yellow", "revoked": "red"}


class Term(click.ParamType[timedelta]):
    """For how long a key lives: 12h, 30d, 8w."""

    name = "term"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        match = _TERM.fullmatch(str(value).strip())
        if match is None:
            self.fail("say it like 12h, 30d or 8w", param, ctx)
        return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


@server_command(
    "create",
    click.option(
        "--scope",
        required=True,
        multiple=True,
        type=click.Choice(["read", "write", "admin"], case_sensitive=False),
        help="What it may do: read, write, admin.",
    ),
    click.option("--expires", type=Term(), help="For how long: 12h, 30d, 8w."),
    click.option("--label", help="A word of yours."),
    click.option("--max-gpus", type=click.IntRange(0), help="The most GPUs that it may hold."),
    click.option("--max-usd-per-hour", metavar="USD", help="The most that its instances may cost an hour."),
    click.option(
        "--max-lease",
        type=Duration(),
        help="Each of its instances has a lease, of at most this length: 90m, 8h, 2d.",
    ),
    click.option("--rpm", type=click.IntRange(1), help="Requests a minute."),
    ids=True,
)
def create_key(
    server: ServerConnection,
    output: Output,
    scope: tuple[str, ...],
    expires: timedelta | None,
    label: str | None,
    **values: Any,
) -> None:
    """Make a key. It is shown now and never again; with -q only the key is."""
    limits = {
        "requestsPerMinute": values["rpm"],
        "maxGpus": values["max_gpus"],
        "maxHourlyUsd": values["max_usd_per_hour"],
        "maxLeaseSeconds": None if values["max_lease"] is None else round(values["max_lease"]),
    }
    body = {
        "scopes": list(scope),
        "label": label,
        "expiresAt": expires and (output.clock.now() + expires).isoformat(),
        "limits": {name: value for name, value in limits.items() if value is not None} or None,
    }
    made = server.post("/api/keys", body)
    secret = _once_shown(made, "key")
    if not output.for_people:
        # Print the two secrets last.
        rest = {name: value for name, value in made.items() if name not in ("key", "webhookSecret")}
        output.answer({**rest, "key": secret, "webhookSecret": made.get("webhookSecret") or None}, secret)
        return
    output.page(
        ("key", secret),
        ("webhook secret", made.get("webhookSecret")),
        ("id", str(made["id"])),
        ("label", made.get("label")),
        ("scopes", ", ".join(made.get("scopes") or ())),
        ("limits", _limits(made)),
        ("expires", output.when(made.get("expiresAt"))),
    )
    output.note("Keep the key now: it is stored nowhere, and shown never again.")


@server_command("ls", ids=True)
def list_keys(server: ServerConnection, output: Output) -> None:
    """List the keys, without what would let anybody in."""
    output.list(KEYS, server.rows("/api/keys", "keys"))


@server_command(
    "revoke",
    click.argument("key_id", metavar="ID", help="Which key: the 8 characters after ghk_."),
    ids=True,
)
def revoke_key(server: ServerConnection, output: Output, key_id: str) -> None:
    """Revoke a key, at once. What it has rented goes on."""
    revoked = server.delete(path_of("keys", key_id))
    if output.for_people:
        output.note(f"revoked {safe(key_id)}")
    else:
        output.answer(revoked, key_id)


@server_command(
    "webhook-secret",
    click.argument("key_id", required=False, metavar="[ID]", help="Which key; without it your own."),
    click.option("--rotate", is_flag=True, help="Give it a new one; for 24 hours the old one signs too."),
    ids=True,
)
def webhook_secret(server: ServerConnection, output: Output, key_id: str | None, rotate: bool) -> None:
    """Show what signs the webhooks of a key; with -q only the secret is.

    A key sees its own secret; of others an admin sees a new one only.
    """
    path = path_of("keys", key_id or "me", "webhook-secret")
    found = server.post(f"{path}/rotate") if rotate else server.get(path)
    secret = found.get("secret") or None
    signed_with = str(found["signedWith"])
    if not output.for_people:
        rest = {name: value for name, value in found.items() if name != "secret"}
        output.answer({**rest, "secret": secret}, str(secret or ""))
        return
    output.page(
        ("key", str(found["keyId"])),
        ("signed with", _SIGNED_WITH.get(signed_with, signed_with)),
        ("secret", secret),
        ("rotated", output.when(found.get("rotatedAt"))),
        ("old secret signs until", output.when(found.get("previousSecretSignsUntil"))),
    )


def _once_shown(made: ServerReply, name: str) -> str:
    """Return a secret that the server shows only once."""
    secret = made.get(name)
    if not isinstance(secret, str) or not secret:
        raise UnexpectedReply(f"{made.get('id')} was made, but the server's answer shows no {name}")
    return secret


def _limits(key: Row) -> str:
    limits = key.get("limits") or {}
    gpus, dollars, rate, lease_s = (
        limits.get(name) for name in ("maxGpus", "maxHourlyUsd", "requestsPerMinute", "maxLeaseSeconds")
    )
    words = (
        "" if gpus is None else f"{gpus} GPUs",
        "" if dollars is None else f"${dollars}/h",
        "" if rate is None else f"{rate}/min",
        "" if lease_s is None else f"lease {time_ahead(lease_s)}",
    )
    return ", ".join(filter(None, words))


KEYS = ListTable(
    "keys",
    (
        Column("ID", "id", 0),
        Column("LABEL", "label", 3, shrinks_to=8),
        Column("SCOPES", lambda row: ", ".join(row.get("scopes") or ()), 1),
        Column("STATUS", "status", 2, style=lambda row: _KEY_STYLES.get(row.get("status"), "")),
        Column("LIMITS", _limits, 4),
        Column("USED", Ago("lastUsedAt"), 5),
        Column("EXPIRES", Ago("expiresAt"), 6),
        Column("CREATED", Ago("createdAt"), 7),
    ),
    "no keys but the admin key",
)
keys = group_with_default(
    "keys",
    list_keys,
    create_key,
    revoke_key,
    webhook_secret,
    help="Who else may use this server, how far, and how long.",
)


# --- secrets: a value is never an argument or an answer ---


_SECRET = click.argument("name", metavar="NAME", help="What it is called.")
_SHARED = click.option("--shared", is_flag=True, help="For all keys; only an admin may.")
SECRETS = ListTable(
    "secrets",
    (
        Column("NAME", "name", 0),
        Column("FOR", lambda row: "all keys" if row.get("shared") else "this key", 1),
        Column("CHANGED", Ago("changedAt"), 2),
    ),
    "no secrets",
    id=lambda row: str(row["name"]),
)


@server_command("set", _SECRET, _SHARED, ids=True)
def set_secret(server: ServerConnection, output: Output, name: str, shared: bool) -> None:
    """Keep a value under a name: typed unseen, or read from a pipe. It never comes back."""
    body: dict[str, Any] = {"value": read_secret("value")}
    kept = server.put(path_of("secrets", name), body | {"shared": True} if shared else body)
    if not output.for_people:
        output.answer(kept, str(kept["name"]))
        return
    output.out.print(f"{safe(kept['name'])} is set")
    output.note(f"use it with: gpuherd up … --secret VARIABLE={safe(kept['name'])}")


@server_command("ls", ids=True)
def list_secrets(server: ServerConnection, output: Output) -> None:
    """List the secrets that your key may use, without their values."""
    output.list(SECRETS, server.rows("/api/secrets", "secrets"))


@server_command("rm", _SECRET, _SHARED, ids=True)
def remove_secret(server: ServerConnection, output: Output, name: str, shared: bool) -> None:
    """Remove a secret. What runs keeps its value; what refers to it cannot be rented any more."""
    path = path_of("secrets", name)
    removed = server.delete(f"{path}?shared=true" if shared else path)
    if output.for_people:
        output.out.print(f"{safe(removed['name'])} is removed")
    else:
        output.answer(removed, str(removed["name"]))


@server_command("rotate", ids=True)
def rotate_secrets(server: ServerConnection, output: Output) -> None:
    """Seal all secrets again with the present GPUHERD_SECRETS_KEY; tell what needs the previous one."""
    done = server.post("/api/secrets/rotate")
    if output.silent:
        return
    if not output.for_people:
        output.json(done)
        return
    output.out.print(f"{done['resealed']} sealed again")
    if done.get("unreadable"):
        output.note(f"no key opens, so set anew: {safe(', '.join(done['unreadable']))}", "yellow")
    if done.get("instancesLeft"):
        left = done["instancesLeft"]
        output.note(f"{left} instances have variables that need the previous key; keep it")
    else:
        output.note("nothing needs the previous key any more")


secrets = group_with_default(
    "secrets",
    list_secrets,
    set_secret,
    remove_secret,
    rotate_secrets,
    help="Values for variables of instances, kept encrypted.",
)


# --- the audit log: read it, and verify that it is unchanged ---


AUDIT = ListTable(
    "entries",
    (
        Column("N", "n", 5, right=True),
        Column("AT", Ago("at"), 2),
        Column("ACTOR", "actor", 1),
        Column("ACTION", "action", 0),
        Column("TARGET", "target", 3, shrinks_to=12),
        Column("BEFORE", "before", 7, shrinks_to=8),
        Column("AFTER", "after", 6, shrinks_to=12),
        Column("REQUEST", "requestId", 8),
    ),
    "nothing was done yet",
    id=lambda row: text_of(row.get("n")),
)


@server_command("ls", LIMIT_OPTION, ALL_OPTION)
def list_entries(server: ServerConnection, output: Output, limit: int, everything: bool) -> None:
    """List who did what, newest first."""
    output.list(AUDIT, server.rows("/api/audit", "entries", everything=everything, limit=limit))


@server_command("verify", silent=True)
def verify(server: ServerConnection, output: Output) -> None:
    """Compute every seal anew. Exit code 1 names the first entry that is not as it was written.

    Keep the last hash that is shown in a place of yours: as long as it comes again, nothing was cut off.
    Entries pruned for their age are told by an entry of their own; the chain is verified from there on.
    """
    verdict = None
    while verdict is None:
        verdict = _walk_chain(server)
    broken_at, pruned = verdict["brokenAt"], verdict["prunedUpTo"]
    if output.silent:
        pass
    elif not output.for_people:
        output.json(verdict)
    elif broken_at is None:
        begin = f" after entry {pruned}" if pruned else ""
        as_written = f"{verdict['entries']} entries{begin}, all as they were written"
        output.note(f"{as_written}; last hash {verdict['lastHash']}")
    else:
        output.note(f"the chain is broken at entry {broken_at}", "red")
    if broken_at is not None:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


audit = group_with_default("audit", list_entries, verify, help="Who did what.")


def _walk_chain(server: ServerConnection) -> dict[str, Any] | None:
    """Return the verdict on the chain; None if it was pruned meanwhile."""
    page = _audit_page(server, None)
    anchor = _anchor(page)
    first_n = anchor.n if anchor else 0
    last_n, last_hash = first_n, anchor.hash if anchor else audit_chain.NO_HASH
    is_told = anchor is None

    def verdict(broken_at: int | None, entries: int) -> dict[str, Any]:
        return {
            "intact": broken_at is None,
            "entries": entries,
            "lastHash": last_hash,
            "brokenAt": broken_at,
            "prunedUpTo": first_n,
        }

    # Page by page: the log may be longer than fits into memory.
    while True:
        if _anchor(page) != anchor:
            return None
        read = [_entry(row) for row in page["entries"]]
        entries = [entry for entry in read if entry is not None]
        broken_at = audit_chain.first_broken_entry(entries, last_n, last_hash)
        if broken_at is None and None in read:
            # gpuherd did not write an unreadable entry.
            broken_at = last_n + read.index(None) + 1
        if broken_at is not None:
            return verdict(broken_at, broken_at - 1 - first_n)
        is_told = is_told or any(anchor is not None and anchor.is_told_by(entry) for entry in entries)
        if entries:
            last_n, last_hash = entries[-1].n, entries[-1].hash
        if not page.get("nextCursor"):
            # An attacker who removes entries can move the anchor, but cannot record the pruning in the log.
            return verdict(None if is_told else first_n, last_n - first_n)
        page = _audit_page(server, page["nextCursor"])


def _audit_page(server: ServerConnection, cursor: object) -> ServerReply:
    return server.rows("/api/audit", "entries", order="asc", limit=100, cursor=cursor)


def _anchor(page: ServerReply) -> audit_chain.AuditAnchor | None:
    match page.get("anchor"):
        case {"n": int(n), "hash": str(last_hash)}:
            return audit_chain.AuditAnchor(n, last_hash)
        case _:
            return None


def _entry(row: Row) -> audit_chain.AuditEntry | None:
    # A changed entry may lack any field.
    n, at = row.get("n"), moment_of(row.get("at"))
    if not isinstance(n, int) or at is None:
        return None
    fields = ("actor", "action", "target", "before", "after", "requestId")
    record = audit_chain.AuditRecord(at, *(text_of(row.get(name)) for name in fields))
    return audit_chain.AuditEntry(n, record, text_of(row.get("hash")))
