"""The commands about webhooks: endpoints, deliveries, replays, tests."""

from __future__ import annotations

import sys
from datetime import timedelta

import click
from rich.text import Text

from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import (
    Ago,
    Column,
    ListTable,
    Mode,
    Output,
    Row,
    joined,
    moment_of,
    safe,
    text_of,
)
from gpuherd.entrypoints.cli.command_runner import (
    ALL_OPTION,
    INSTANCE_OPTION,
    LIMIT_OPTION,
    Duration,
    group_with_default,
    server_command,
)
from gpuherd.entrypoints.cli.instance_facts import find_instance_id
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import ServerReply, UnexpectedReply
from gpuherd.entrypoints.cli.webhook_receiver import listen

ENDPOINT_PREFIX = "ep_"
# The only kind of endpoint that has a secret.
SIGNED_KIND = "webhook"
# The receiver has 15 s to answer a test.
TEST_TIMEOUT_S = 40.0
_ENDPOINT_ID = click.argument("endpoint_id", metavar="ID", help="Which endpoint (ep_…).")
_STYLES = {"delivered": "green", "dead": "red", "enabled": "green", "disabled": "red"}


# --- endpoints ---


@server_command("ls", ids=True)
def list_endpoints(server: ServerConnection, output: Output) -> None:
    """List the endpoints."""
    output.list(ENDPOINTS, server.rows("/api/webhooks/endpoints", "endpoints"))


@server_command(
    "add",
    click.argument(
        "url",
        help="Where to send what happens; for mail mailto:you@example.com. - reads it from the standard "
        "input, where no list of processes shows it.",
    ),
    click.option(
        "--kind",
        type=click.Choice(["webhook", "slack", "discord", "ntfy", "email"], case_sensitive=False),
        help="How it is written: signed JSON (webhook), or for people.",
    ),
    click.option("--event", "events", multiple=True, metavar="TYPE", help="Only these; may be given often."),
    click.option("--label", help="A word of yours."),
    ids=True,
)
def add_endpoint(
    server: ServerConnection,
    output: Output,
    url: str,
    kind: str | None,
    events: tuple[str, ...],
    label: str | None,
) -> None:
    """Add an endpoint. The secret of a webhook is shown now and never again; with -q only the secret is."""
    address = sys.stdin.readline().strip() if url == "-" else url
    body = {"url": address, "kind": kind, "label": label, "events": list(events) or None}
    _print_with_secret(output, server.post("/api/webhooks/endpoints", body))


@server_command("rotate", _ENDPOINT_ID, ids=True)
def rotate_secret(server: ServerConnection, output: Output, endpoint_id: str) -> None:
    """Give an endpoint a new secret; for 24 hours the old one signs too. With -q only the secret is shown."""
    _print_with_secret(output, server.post(path_of("webhooks", "endpoints", endpoint_id, "rotate")))


@server_command("rm", _ENDPOINT_ID, ids=True)
def remove_endpoint(server: ServerConnection, output: Output, endpoint_id: str) -> None:
    """Remove an endpoint; what is still on its way there is given up."""
    removed = server.delete(path_of("webhooks", "endpoints", endpoint_id))
    if output.for_people:
        output.note(f"removed {safe(endpoint_id)}")
    else:
        output.answer(removed, endpoint_id)


@server_command("enable", _ENDPOINT_ID, ids=True)
def enable_endpoint(server: ServerConnection, output: Output, endpoint_id: str) -> None:
    """Switch an endpoint on again that was disabled."""
    _print_endpoint(output, server.post(path_of("webhooks", "endpoints", endpoint_id, "enable")))


def _state(endpoint: Row) -> str:
    return "enabled" if endpoint.get("enabled") else "disabled"


def _events(endpoint: Row) -> str:
    return "all" if endpoint.get("events") is None else ", ".join(endpoint["events"])


ENDPOINTS = ListTable(
    "endpoints",
    (
        Column("ID", "id", 1),
        Column("KIND", lambda row: str(row.get("kind") or SIGNED_KIND), 2),
        Column("URL", "url", 0, shrinks_to=20),
        Column("STATE", _state, 2, style=lambda row: _STYLES[_state(row)]),
        Column("EVENTS", _events, 4, shrinks_to=12),
        Column("LABEL", "label", 3, shrinks_to=8),
        Column("CREATED", Ago("createdAt"), 5),
    ),
    "no endpoints",
)


def _print_with_secret(output: Output, made: ServerReply) -> None:
    """Print an endpoint with its new secret; only the kind `webhook` has one."""
    secret = made.get("secret")
    endpoint = {name: value for name, value in made.items() if name != "secret"}
    if (made.get("kind") or SIGNED_KIND) != SIGNED_KIND:
        _print_endpoint(output, endpoint)
    elif not isinstance(secret, str) or not secret:
        raise UnexpectedReply(f"{made['id']} has a new secret, but the server's answer does not show it")
    elif output.mode is Mode.IDS:
        output.ids([secret])
    elif output.for_people:
        _print_endpoint(output, endpoint, secret)
        output.note("keep the secret now: it is never shown again", "yellow")
    else:
        output.json({**endpoint, "secret": secret})


def _print_endpoint(output: Output, endpoint: Row, secret: str = "") -> None:
    if not output.for_people:
        output.answer(endpoint, str(endpoint["id"]))
        return
    until = moment_of(endpoint.get("previousSecretSignsUntil"))
    overlaps = until is not None and until > output.clock.now()
    output.page(
        ("id", str(endpoint["id"])),
        ("kind", str(endpoint.get("kind") or SIGNED_KIND)),
        ("url", endpoint.get("url")),
        ("label", endpoint.get("label")),
        ("events", _events(endpoint)),
        ("state", Text(_state(endpoint), _STYLES[_state(endpoint)])),
        ("reason", endpoint.get("disabledReason")),
        ("secret", secret),
        ("note", "" if endpoint.get("secretKnown") else "its root key is lost; rotate the secret"),
        ("created", output.when(endpoint.get("createdAt"))),
        ("rotated", output.when(endpoint.get("rotatedAt"))),
        ("old secret signs until", output.when(endpoint["previousSecretSignsUntil"]) if overlaps else ""),
    )


# --- deliveries ---


@server_command(
    "deliveries",
    click.option(
        "--state",
        type=click.Choice(["pending", "delivered", "failed", "dead"], case_sensitive=False),
        help="Only those in this state.",
    ),
    INSTANCE_OPTION,
    click.option("--endpoint", metavar="ID", help="Only those to this endpoint."),
    click.option("--type", "kind", help="Only these: instance.ready…"),
    LIMIT_OPTION,
    ALL_OPTION,
    ids=True,
)
def list_deliveries(
    server: ServerConnection,
    output: Output,
    state: str | None,
    instance: str | None,
    endpoint: str | None,
    kind: str | None,
    limit: int,
    everything: bool,
) -> None:
    """List what was sent, or could not be."""
    found = server.rows(
        "/api/webhooks/deliveries",
        "deliveries",
        everything=everything,
        state=state,
        instanceId=None if instance is None else find_instance_id(server, instance),
        endpointId=endpoint,
        type=kind,
        limit=limit,
    )
    output.list(DELIVERIES, found)


@server_command(
    "show", click.argument("which", metavar="ID", help="An endpoint (ep_…) or a delivery (msg_…).")
)
def show(server: ServerConnection, output: Output, which: str) -> None:
    """Show everything about one endpoint, or one delivery with its tries."""
    if which.startswith(ENDPOINT_PREFIX):
        _print_endpoint(output, server.get(path_of("webhooks", "endpoints", which)))
    else:
        _print_delivery(output, server.get(path_of("webhooks", "deliveries", which)))


@server_command(
    "replay",
    click.argument("delivery_id", required=False, metavar="[ID]", help="Which delivery (msg_…)."),
    click.option("--since", type=Duration(), help="How long ago: 90s, 20m, 2h."),
    click.option("--dead", is_flag=True, help="With --since: only what was given up."),
    click.option("--endpoint", metavar="ID", help="With --since: only those to this endpoint."),
)
def replay(
    server: ServerConnection,
    output: Output,
    delivery_id: str | None,
    since: float | None,
    dead: bool,
    endpoint: str | None,
) -> None:
    """Send one delivery again, or all that failed since a while ago: the same ids, the same bytes."""
    if (delivery_id is None) == (since is None):
        raise click.BadParameter("give the ID of one delivery, or --since")
    if delivery_id is not None:
        _print_delivery(output, server.post(path_of("webhooks", "deliveries", delivery_id, "replay")))
        return
    moment = output.clock.now() - timedelta(seconds=since or 0)
    body = {"since": moment.isoformat(), "state": "dead" if dead else "failed", "endpointId": endpoint}
    count = int(server.post("/api/webhooks/replay", body).get("count", 0))
    if output.for_people:
        output.note(f"{count} on their way again")
    else:
        output.json({"count": count})


@server_command(
    "test",
    click.argument("target", metavar="URL|ID", help="An address, or an endpoint (ep_…)."),
    silent=True,
)
def test(server: ServerConnection, output: Output, target: str) -> None:
    """Send one test event now, as the endpoint gets all others; exit code 1 if it is not accepted."""
    body = {"endpointId" if target.startswith(ENDPOINT_PREFIX) else "url": target}
    tried = server.post("/api/webhooks/test", body, timeout_s=TEST_TIMEOUT_S)
    accepted = bool(tried["accepted"])
    if output.for_people:
        took = f"in {_milliseconds(tried.get('durationMs') or 0)}"
        if accepted:
            output.show(Text(safe(f"accepted with {tried.get('status')} {took}"), "green"))
        else:
            words = f"not accepted ({tried.get('outcome')}) {took}: {tried.get('error') or ''}"
            output.show(Text(safe(words), "red"))
    elif not output.silent:
        output.json(tried)
    if not accepted:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


def _delivery_style(delivery: Row) -> str:
    return _STYLES.get(delivery.get("state"), "yellow")


DELIVERIES = ListTable(
    "deliveries",
    (
        Column("ID", "id", 3),
        Column("TYPE", "type", 0, shrinks_to=12),
        Column("STATE", "state", 1, style=_delivery_style),
        Column("TRIES", "tries", 4, right=True),
        Column("CREATED", Ago("createdAt"), 5),
        Column("NEXT", Ago("nextTryAt"), 6),
        Column("URL", "url", 7, shrinks_to=20),
        Column("ERROR", "lastError", 2, shrinks_to=16),
    ),
    "no deliveries",
)


def _print_delivery(output: Output, delivery: Row) -> None:
    if not output.for_people:
        output.answer(delivery, str(delivery["id"]))
        return
    when = output.when
    output.page(
        ("id", str(delivery["id"])),
        ("type", str(delivery["type"])),
        ("state", Text(safe(delivery["state"]), _delivery_style(delivery))),
        ("instance", delivery.get("instanceId")),
        ("endpoint", delivery.get("endpointId")),
        ("url", delivery.get("url")),
        ("tries", text_of(delivery.get("tries"))),
        ("created", when(delivery.get("createdAt"))),
        ("next try", when(delivery.get("nextTryAt"))),
        ("delivered", when(delivery.get("deliveredAt"))),
        ("error", delivery.get("lastError")),
        *((f"try {n}", _try(output, tried)) for n, tried in enumerate(delivery.get("log") or (), start=1)),
    )


def _try(output: Output, tried: Row) -> str:
    took = "" if tried.get("durationMs") is None else _milliseconds(tried["durationMs"])
    return joined(output.when(tried.get("at")), tried.get("outcome"), tried.get("status"), took, by="  ")


def _milliseconds(duration: float) -> str:
    return f"{int(duration) if duration == int(duration) else duration} ms"


webhooks = group_with_default(
    "webhooks",
    list_endpoints,
    add_endpoint,
    remove_endpoint,
    rotate_secret,
    enable_endpoint,
    list_deliveries,
    show,
    replay,
    test,
    listen,
    help="Who is told what happens, and whether it arrived.",
)
