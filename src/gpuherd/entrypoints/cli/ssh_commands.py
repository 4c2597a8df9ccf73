"""The commands that connect to a machine: ssh, exec, cp, open, ssh-config.

Text from the cloud is checked strictly before it becomes arguments or an address.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import click

from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode, detail_of
from gpuherd.entrypoints.cli.cli_output import Output, Row, safe
from gpuherd.entrypoints.cli.command_runner import NAME_OR_ID, server_command
from gpuherd.entrypoints.cli.explain_commands import last_event_id
from gpuherd.entrypoints.cli.instance_facts import command_about, find_instance
from gpuherd.entrypoints.cli.remote_job import Progress, fetch_archive, send_archive
from gpuherd.entrypoints.cli.server_connection import ServerConnection
from gpuherd.entrypoints.cli.server_replies import ServerRefusal, ServerUnreachable
from gpuherd.entrypoints.cli.ssh_connection import (
    PORT_MAX,
    SshConnection,
    SshLost,
    connected,
    is_host,
    not_reachable,
    parse_ssh,
    refuse_unready,
    size_text,
    ssh_target,
    transfer,
)

FOLDER = "folder"
CONFIG_HEAD = "# Written by `gpuherd ssh-config`: changes are lost. Include it from ~/.ssh/config.\n"
# How each block of the ssh configuration begins.
HOST_LINE = "\nHost "
# These characters make no ssh pattern and break no line.
_PLAIN_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


# --- ssh, exec, open ---


@server_command(
    "ssh",
    NAME_OR_ID,
    click.argument(
        "arguments",
        nargs=-1,
        metavar="[-- ARGS]",
        help="For ssh: a command to run there, or options like -L.",
    ),
    click.option("--print", "only_print", is_flag=True, help="Show the command, do not run it."),
)
def ssh(
    server: ServerConnection, output: Output, name_or_id: str, arguments: tuple[str, ...], only_print: bool
) -> None:
    """Log in to an instance, or run a command there. The exit code is that of ssh."""
    instance = find_instance(server, name_or_id)
    target = ssh_target(instance)
    argv = target.command(arguments)
    if click.get_current_context().params["as_json"]:
        output.json({"user": target.user, "host": target.host, "port": target.port, "command": argv})
    elif only_print:
        click.echo(safe(shlex.join(argv)))
    else:
        if instance["status"] == "health_checking":
            output.note(f"{safe(instance['name'])} runs, but its health check is not over yet", "yellow")
        become_ssh(argv)


@server_command(
    "exec",
    NAME_OR_ID,
    click.argument(
        "arguments",
        nargs=-1,
        required=True,
        metavar="-- COMMAND",
        help="The program, and its arguments.",
    ),
    json=False,
)
def execute(server: ServerConnection, output: Output, name_or_id: str, arguments: tuple[str, ...]) -> None:
    """Run a program on an instance: input, output and exit code are its own.

    Unlike with ssh, no shell there reads the words anew: a space or a $ in them stays what it is.
    """
    target = ssh_target(find_instance(server, name_or_id))
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    become_ssh(target.command([shlex.join(arguments)], options=terminal))


@server_command(
    "open",
    NAME_OR_ID,
    click.option("--port", type=click.IntRange(1, PORT_MAX), help="Which HTTP port of the instance."),
    click.option("--print", "only_print", is_flag=True, help="Show the address, do not open it."),
)
def open_page(
    server: ServerConnection, output: Output, name_or_id: str, port: int | None, only_print: bool
) -> None:
    """Open the Jupyter of an instance, or its page on an HTTP port, in the browser."""
    page = page_of(find_instance(server, name_or_id), port)
    if click.get_current_context().params["as_json"]:
        output.json({"url": page})
    elif only_print:
        click.echo(page)
    elif webbrowser.open(page):
        output.note(f"opened {page}")
    else:
        raise CommandError(ExitCode.FAILED, "NO_BROWSER", "no browser can be started here", suggestion=page)


def become_ssh(argv: list[str]) -> None:
    """Replace this process by ssh, which gets the terminal, the signals and the exit code."""
    sys.stdout.flush()
    try:
        # There is no shell in between, and every word was checked or is the user's own.
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        raise CommandError(
            ExitCode.FAILED,
            "NO_SSH",
            f"ssh cannot be started here: {error.strerror}",
            suggestion=f"install OpenSSH, or use elsewhere: {shlex.join(argv)}",
        ) from error


def page_of(instance: Row, port: int | None) -> str:
    """Return the address of Jupyter, of the only HTTP port, or of the requested port."""
    refuse_unready(instance)
    pages = _http_pages(instance)
    if port is not None:
        if port not in pages:
            raise not_reachable(instance, f"{instance['name']} has no HTTP on port {port}{_port_list(pages)}")
        return _checked(instance, pages[port])
    if jupyter := (instance.get("connectionDetails") or {}).get("jupyter"):
        return _checked(instance, str(jupyter))
    if not pages:
        raise not_reachable(instance, f"{instance['name']} has nothing that a browser could show")
    if len(pages) > 1:
        raise CommandError(
            ExitCode.USAGE,
            "SEVERAL_PORTS",
            f"{instance['name']} has several pages{_port_list(pages)}",
            suggestion=f"choose one: {command_about('open', instance)} --port {min(pages)}",
        )
    return _checked(instance, next(iter(pages.values())))


def _http_pages(instance: Row) -> dict[int, str]:
    pages = {}
    for mapping in instance.get("portMappings") or ():
        port, endpoint = mapping.get("port"), mapping.get("endpoint")
        is_http = str(mapping.get("type")).lower() in ("http", "https")
        if is_http and isinstance(port, int) and 1 <= port <= PORT_MAX and endpoint:
            pages[port] = str(endpoint)
    return pages


def _port_list(pages: dict[int, str]) -> str:
    return f"; it has {', '.join(str(port) for port in sorted(pages))}" if pages else ""


def _checked(instance: Row, address: str) -> str:
    if not is_web_address(address):
        raise CommandError(
            ExitCode.FAILED,
            "ODD_ADDRESS",
            f"the cloud gives an address for {instance['name']} that is not opened: "
            "it is no plain http or https",
            suggestion=f"look at it with: {command_about('show', instance)}",
        )
    return address


def is_web_address(address: str) -> bool:
    """Return True if a browser may open this: not a file or a script in disguise."""
    try:
        parts = urlsplit(address)
        plain = parts.scheme in ("http", "https") and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return plain and bool(_VISIBLE_ASCII.fullmatch(address)) and is_host(parts.hostname or "")


# --- cp ---


@dataclass(frozen=True)
class There:
    """A place on an instance: `NAME:path`; relative paths start at the home folder."""

    name: str
    path: str


def parse_place(word: str) -> There | Path:
    """Parse `NAME:path` as a remote place, anything else as a local one; `./a:b` is local."""
    name, colon, path = word.partition(":")
    return There(name, path or ".") if colon and name and "/" not in name else Path(word)


@server_command(
    "cp",
    click.argument(
        "places",
        nargs=-1,
        required=True,
        metavar="SOURCE... TARGET",
        help="One side is NAME:path, the other is here.",
    ),
    json=False,
)
def cp(server: ServerConnection, output: Output, places: tuple[str, ...]) -> None:
    """Copy files or folders to an instance, or from it."""
    if len(places) < 2:
        raise _usage("say what to copy, and where to")
    *sources, target = map(parse_place, places)
    here = [place for place in sources if isinstance(place, Path)]
    there = [place for place in sources if isinstance(place, There)]
    if isinstance(target, There) and not there:
        for path in here:
            if not path.exists():
                raise CommandError(ExitCode.NOT_FOUND, "NO_SUCH_FILE", f"there is no {path} here")
        _send(server, output, here, target)
    elif isinstance(target, Path) and not here and len({place.name for place in there}) == 1:
        _fetch(server, output, there, target)
    else:
        raise _usage("one side must be one instance, NAME:path, and the other this computer")


def _send(server: ServerConnection, output: Output, sources: Sequence[Path], target: There) -> None:
    instance = find_instance(server, target.name)
    with _connection(output, instance) as connection:
        inside = len(sources) > 1 or target.path.endswith("/") or _is_folder(connection, target.path)
        path = PurePosixPath(target.path)
        folder = path if inside else path.parent
        connection.ask(f"mkdir -p -- {shlex.quote(str(folder))}\n")
        for source in sources:
            name = source.resolve().name if inside else path.name
            with transfer(output, output.clock, f"sending {source}") as shown:
                # The folder's name is quoted for the login shell; everything else goes over the stream.
                unpack = f"exec tar -xf - -C {shlex.quote(str(folder))}"
                send_archive(connection, unpack, source, name, (), shown.tell)
            output.note(f"sent {safe(source)} ({size_text(shown.count)})", "dim")


def _fetch(server: ServerConnection, output: Output, sources: Sequence[There], target: Path) -> None:
    instance = find_instance(server, sources[0].name)
    if len(sources) > 1 and not target.is_dir():
        raise CommandError(ExitCode.NOT_FOUND, "NO_SUCH_FOLDER", f"there is no folder {target} here")
    with _connection(output, instance) as connection:
        for source in sources:
            path = PurePosixPath(source.path)
            name = path.name or "."
            script = f"cd -- {shlex.quote(str(path.parent))} && exec tar -cf - -- {shlex.quote(name)}\n"
            with transfer(output, output.clock, f"bringing back {source.path}") as shown:
                if target.is_dir():
                    fetch_archive(connection, script, target, shown.tell)
                else:
                    _fetch_as(connection, script, name, target, shown.tell)
            output.note(f"brought back {safe(source.path)} ({size_text(shown.count)})", "dim")


def _fetch_as(connection: SshConnection, script: str, name: str, target: Path, tell: Progress) -> None:
    """Copy something back under another name."""
    with tempfile.TemporaryDirectory(prefix=".gpuherd-", dir=target.parent) as folder:
        fetch_archive(connection, script, Path(folder), tell)
        (Path(folder) / name).replace(target)


def _is_folder(connection: SshConnection, path: str) -> bool:
    return connection.ask(f"[ -d {shlex.quote(path)} ] && echo {FOLDER}\nexit 0\n").strip() == FOLDER


@contextmanager
def _connection(output: Output, instance: Row) -> Iterator[SshConnection]:
    try:
        with connected(ssh_target(instance), str(instance["id"]), output.clock) as connection:
            yield connection
    except SshLost as lost:
        raise CommandError(ExitCode.FAILED, "CONNECTION_LOST", f"the connection is lost: {lost}") from lost
    except OSError as error:
        words = f"{error.filename or 'a file'}: {error.strerror or error}"
        raise CommandError(ExitCode.FAILED, "FILE_TROUBLE", words) from error


def _usage(words: str) -> CommandError:
    return CommandError(ExitCode.USAGE, "BAD_PLACES", words, suggestion="gpuherd cp data.bin NAME:work/")


# --- ssh-config ---


@server_command(
    "ssh-config",
    click.option(
        "--file",
        type=click.Path(path_type=Path),
        help="Where to write it; by default ~/.ssh/gpuherd.conf.",
    ),
    click.option("--watch", is_flag=True, help="Stay, and write it anew when something changes."),
    json=False,
)
def ssh_config(server: ServerConnection, output: Output, file: Path | None, watch: bool) -> None:
    """Write an ssh configuration that names every instance.

    Once it is included from ~/.ssh/config, `ssh NAME`, scp, rsync and editors find them all, also after a
    restart has moved their ports.
    """
    path = file if file is not None else Path.home() / ".ssh" / "gpuherd.conf"
    try:
        # Read the position first, so that no event during the list is missed.
        history = server.rows("/api/events/history", "events", limit=1)
        if not _write_config(server, output, path):
            output.note(f"{safe(path)} is as it should be")
        if not _is_included(path):
            output.note("let ssh read it: put this line at the top of ~/.ssh/config", "yellow")
            output.note(f'Include "{safe(path)}"')
        if watch:
            _keep_true(server, output, path, last_event_id(history))
    except KeyboardInterrupt:
        # There is no other way to end it.
        if not watch:
            raise


def _write_config(server: ServerConnection, output: Output, path: Path) -> bool:
    """Write the file. Return True if it has changed."""
    rows = server.rows("/api/instances", "instances", everything=True, limit=100)
    text = host_blocks(rows["instances"], path.with_name("gpuherd_known_hosts"))
    if not write_private(path, text):
        return False
    output.note(f"wrote {safe(path)}: {text.count(HOST_LINE)} instances")
    return True


def _keep_true(server: ServerConnection, output: Output, path: Path, position: int) -> None:
    """Write the file again after every event, until Ctrl-C."""
    # The client loads asyncio, aiohttp and pydantic, which the other commands of this module do not need.
    from gpuherd.entrypoints.cli.command_client import open_client  # noqa: PLC0415

    def on_break(error: Exception) -> None:
        output.note(f"cannot hear of changes: {safe(error)}; trying again (Ctrl-C ends)", "yellow")

    with open_client(server, output.clock) as client:
        for _ in client.events(since=position, on_break=on_break):
            try:
                _write_config(server, output, path)
            except (ServerUnreachable, ServerRefusal) as failure:
                # The next event brings the next try.
                output.note(f"cannot ask the server: {safe(detail_of(failure))}", "yellow")


def write_private(path: Path, text: str) -> bool:
    """Replace a file completely, readable only by its owner. Return False if it was the same already."""
    try:
        if path.is_file() and path.read_text() == text:
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix=".gpuherd-", dir=path.parent)
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(fresh).replace(path)
        return True
    except OSError as error:
        words = f"{path} cannot be written: {error.strerror}"
        raise CommandError(
            ExitCode.FAILED, "CANNOT_WRITE", words, suggestion="give another --file"
        ) from error


def _is_included(path: Path) -> bool:
    config = Path.home() / ".ssh" / "config"
    try:
        return any(
            line.strip().lower().startswith("include") and path.name in line
            for line in config.read_text(errors="replace").splitlines()
        )
    except OSError:
        return False


def host_blocks(instances: Iterable[Row], known_hosts: Path) -> str:
    """Return a block for each running instance, by id, and by name if the name is safe and unique."""
    there = [
        instance
        for instance in instances
        if _ssh_of(instance) and (instance.get("usable") or instance["status"] == "health_checking")
    ]
    names = Counter(str(instance["name"]) for instance in there)
    blocks = (_block(instance, known_hosts, named=names[str(instance["name"])] == 1) for instance in there)
    return CONFIG_HEAD + "".join(blocks)


def _block(instance: Row, known_hosts: Path, *, named: bool) -> str:
    try:
        target = parse_ssh(_ssh_of(instance))
    except ValueError:
        # The cloud's text is not a plain address, so no command may use it.
        return ""
    name, instance_id = str(instance["name"]), str(instance["id"])
    words = [name] if named and _PLAIN_HOST.fullmatch(name) else []
    hosts = " ".join([*words, instance_id])
    return (
        f"{HOST_LINE}{hosts}\n"
        f"    HostName {target.host}\n"
        f"    Port {target.port}\n"
        f"    User {target.user}\n"
        # Other machines with other keys reuse the ports of the proxy.
        f"    HostKeyAlias {instance_id}\n"
        f"    StrictHostKeyChecking accept-new\n"
        f'    UserKnownHostsFile "{known_hosts}"\n'
    )


def _ssh_of(instance: Row) -> str:
    return str((instance.get("connectionDetails") or {}).get("ssh") or "")
