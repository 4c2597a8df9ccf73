"""Runs commands: `@server_command`, exit codes, questions, completion, shared options."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import update_wrapper
from getpass import getpass
from random import Random
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode, print_error, problem_report, report_of
from gpuherd.entrypoints.cli.cli_output import CommandClock, Output, Row
from gpuherd.entrypoints.cli.server_replies import ServerFailure, ServerReply
from gpuherd.entrypoints.durations import parse_duration
from gpuherd.settings_loading import AddressInvalid, ServerAddress

if TYPE_CHECKING:
    from gpuherd.entrypoints.cli.server_connection import ServerConnection

Option = Callable[[Any], Any]
Body = Callable[..., None]
# A choice for shell completion: its words, the best first, and a description.
Choice = tuple[tuple[str, ...], str]
Lookup = Callable[["ServerConnection"], list[Choice]]

COMPLETION_TIMEOUT_S = 1.0
ID_PREFIX = "inst_"
# zsh evaluates completion words, and a stranger may have chosen a name.
_SHELL_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHELL_UNSAFE = re.compile(r"[^A-Za-z0-9 ._-]+")


class SystemTime:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        # Only what follows sleeps so, and that has loaded asyncio already.
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class CommandContext:
    """The dependencies of a command. Tests provide their own."""

    find_server: Callable[[], ServerAddress]
    clock: CommandClock
    rng: Random

    def connect(self, timeout_s: float | None = None) -> ServerConnection:
        """Return a connection to the server that the settings name."""
        # http.client takes as long to load as click does, and a page of help needs no server.
        from gpuherd.entrypoints.cli.server_connection import ServerConnection  # noqa: PLC0415

        return ServerConnection(self.find_server(), timeout_s)


def command_context() -> CommandContext:
    """Return the dependencies of the running command."""
    found = click.get_current_context().find_object(CommandContext)
    assert found is not None, "cli_app gives every command its context"
    return found


JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="JSON, also on a terminal.")
IDS_OPTION = click.option("--quiet", "-q", "quiet", is_flag=True, help="Only ids, one a line.")
SILENT_OPTION = click.option("--quiet", "-q", "quiet", is_flag=True, help="Nothing; the exit code tells.")


def server_command(
    name: str, *options: Option, json: bool = True, ids: bool = False, silent: bool = False
) -> Callable[[Body], click.Command]:
    """Make a command of a function of a connection, an output, and the values of the options.

    The command has `--json`; with `ids` or `silent` it has `--quiet`. A failure becomes an error report and
    an exit code.
    """

    def run(body: Body, output: Output, values: dict[str, Any]) -> None:
        with command_context().connect() as server:
            body(server, output, **values)

    return _command(name, options, run, json=json, ids=ids, silent=silent)


def local_command(
    name: str, *options: Option, json: bool = True, ids: bool = False, silent: bool = False
) -> Callable[[Body], click.Command]:
    """Make a command that needs no server, of a function of an output and the values of the options."""

    def run(body: Body, output: Output, values: dict[str, Any]) -> None:
        body(output, **values)

    return _command(name, options, run, json=json, ids=ids, silent=silent)


def _command(
    name: str,
    options: Sequence[Option],
    run: Callable[[Body, Output, dict[str, Any]], None],
    *,
    json: bool,
    ids: bool,
    silent: bool,
) -> Callable[[Body], click.Command]:
    common = [JSON_OPTION] * json + [IDS_OPTION] * ids + [SILENT_OPTION] * silent

    def make(body: Body) -> click.Command:
        def callback(*, as_json: bool = False, quiet: bool = False, **values: Any) -> None:
            output = Output.for_command(command_context().clock, as_json=as_json, quiet=quiet)
            with exit_on_failure(output):
                run(body, output, values)

        command: Any = update_wrapper(callback, body)
        for option in reversed([*options, *common]):
            command = option(command)
        return click.command(name)(command)

    return make


@contextmanager
def exit_on_failure(output: Output) -> Iterator[None]:
    """Print a failure and end the command with its exit code."""
    try:
        yield
    except (CommandError, ServerFailure, AddressInvalid) as failure:
        report = report_of(failure)
        print_error(output, report)
        raise click.exceptions.Exit(int(report.exit_code)) from failure
    except KeyboardInterrupt as interrupt:
        raise click.exceptions.Exit(int(ExitCode.INTERRUPTED)) from interrupt


@contextmanager
def ends_by_interrupt() -> Iterator[None]:
    """Treat Ctrl-C as the normal end of the block and the command."""
    with suppress(KeyboardInterrupt):
        yield


@contextmanager
def detaches_by_interrupt(output: Output, farewell: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with a remark; the work of the server continues."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(farewell())
        raise


def group_with_default(
    name: str, default: click.Command, *commands: click.Command, help: str | None = None
) -> click.Group:
    """Return a group that runs `default`, with its options, when no subcommand is given.

    A default that is called `ls` is a subcommand, too.
    """

    @click.pass_context
    def run_default(context: click.Context, /, **values: Any) -> None:
        if context.invoked_subcommand is None:
            assert default.callback is not None
            default.callback(**values)

    return click.Group(
        name,
        callback=run_default,
        commands=[*([default] if default.name == "ls" else ()), *commands],
        invoke_without_command=True,
        params=list(default.params),
        help=help or default.help,
    )


# --- questions ---


def is_interactive() -> bool:
    """Return True if a person can answer a question."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def require_terminal() -> None:
    """Reject a command that must ask if no person can answer."""
    if not is_interactive():
        raise click.BadParameter("nobody can be asked here; say --yes if it shall go", param_hint="--yes")


def confirm_or_exit(output: Output, question: str, otherwise: str) -> None:
    """Ask, and return only if the answer is yes. Otherwise print `otherwise` and end the command."""
    try:
        confirmed = click.confirm(question, err=True)
    except click.Abort:
        output.note(f"\n{otherwise}")
        raise click.exceptions.Exit(int(ExitCode.INTERRUPTED)) from None
    if not confirmed:
        output.note(otherwise)
        raise click.exceptions.Exit(int(ExitCode.FAILED))


def read_secret(prompt: str) -> str:
    """Return a secret from a hidden prompt or a pipe. All processes could read an argument."""
    if sys.stdin.isatty():
        # getpass asks only after the terminal has stopped showing what is typed.
        while not (typed := getpass(f"{prompt}: ")):
            pass
        return typed
    # The final line break of echo and most files is not a part of the secret.
    return sys.stdin.read().removesuffix("\n")


def find_one(rows: Iterable[Row], word: str, named_by: str, code: str, nouns: tuple[str, str]) -> Row:
    """Return the row with this id, otherwise the only row with this name; `code` is for a missing row."""
    everything = list(rows)
    found = [row for row in everything if row["id"] == word]
    found = found or [row for row in everything if row.get(named_by) == word]
    if len(found) == 1:
        return found[0]
    one, many = nouns
    if not found:
        raise CommandError.of(problem_report(code, "not found", f"there is no {one} {word}", 404))
    detail = f"{len(found)} {many} {word}; use the id"
    raise CommandError.of(problem_report("AMBIGUOUS_NAME", "more than one could be meant", detail, 409))


def remove_after_confirm(
    output: Output,
    find: Callable[[], Row],
    delete: Callable[[Row], ServerReply],
    describe: Callable[[Row], tuple[str, str]],
    *,
    yes: bool,
) -> None:
    """Find something, ask, delete it. `describe` returns the question and the name of what is deleted."""
    if not yes:
        require_terminal()
    found = find()
    question, name = describe(found)
    if not yes:
        confirm_or_exit(output, question, "nothing was removed")
    removed = delete(found)
    if output.for_people:
        output.note(f"removed {name}")
    else:
        output.answer(removed, str(removed["id"]))


# --- types of values ---


class Duration(click.ParamType[float]):
    """A time like 90, 90s, 20m, 1h; the value is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


# --- completion, and options that many commands share ---


def fetch_choices(lookup: Lookup, context: CommandContext, timeout_s: float) -> list[Choice]:
    """Return the choices; none if the server does not answer in time."""
    try:
        with context.connect(timeout_s) as server:
            return lookup(server)
    except (ServerFailure, AddressInvalid):
        # The next command that needs the server reports this better.
        return []


def completion(lookup: Lookup) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a completion of an option with the server's values, as safe words."""

    def complete(context: click.Context, _: click.Parameter, beginning: str) -> list[CompletionItem]:
        around = context.find_object(CommandContext)
        found = [] if around is None else fetch_choices(lookup, around, COMPLETION_TIMEOUT_S)
        return [CompletionItem(word, help=about) for word, about in shell_safe_words(found, beginning)]

    return complete


def shell_safe_words(found: Sequence[Choice], beginning: str) -> list[tuple[str, str]]:
    """Return a safe word and description for each choice with this beginning."""
    words = []
    for names, about in found:
        plain = [name for name in names if _SHELL_SAFE.fullmatch(name)]
        # A user who begins an id gets ids.
        best = plain[-1 if beginning.startswith(ID_PREFIX) else 0] if plain else ""
        if best and best.startswith(beginning):
            words.append((best, _SHELL_UNSAFE.sub(" ", about).strip()))
    return words


def instance_choices(server: ServerConnection) -> list[Choice]:
    """Return the instances: by name if only one has that name, and by id."""
    rows = server.rows("/api/instances", "instances", limit=100)["instances"]
    there = [row for row in rows if row["status"] != "deleted"]
    names = [str(row["name"]) for row in there]
    return [
        ((name, str(row["id"])) if names.count(name) == 1 else (str(row["id"]),), str(row["status"]))
        for name, row in zip(names, there, strict=True)
    ]


def _not_blank(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("give a name or an id")
    return value


NAME_OR_ID = click.argument(
    "name_or_id", metavar="NAME_OR_ID", callback=_not_blank, shell_complete=completion(instance_choices)
)
INSTANCE_OPTION = click.option(
    "--instance",
    metavar="NAME_OR_ID",
    shell_complete=completion(instance_choices),
    help="Only those of this instance.",
)
LIMIT_OPTION = click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=50,
    show_default=True,
    help="How many at most (a page, with --all).",
)
ALL_OPTION = click.option("--all", "everything", is_flag=True, help="All pages.")
YES_OPTION = click.option("--yes", "-y", "yes", is_flag=True, help="Do not ask.")
WAIT_OPTION = click.option("--wait", is_flag=True, help="Follow it to the end. Ctrl-C detaches.")
TIMEOUT_OPTION = click.option(
    "--timeout",
    type=Duration(),
    default=30 * 60.0,
    show_default="30m",
    help="How long to wait: 90, 90s, 20m, 1h.",
)
LABEL_OPTION = click.option("--label", multiple=True, metavar="KEY=VALUE", help="May be given often.")
THEN_OPTION = click.option(
    "--then",
    type=click.Choice(["stop", "delete"]),
    help="What becomes of it at its end; stop keeps its disk, which may cost.",
)


def labels_of(words: Sequence[str]) -> dict[str, str]:
    """Return the labels that were written as key=value."""
    labels = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="--label")
        labels[key.strip()] = value
    return labels
