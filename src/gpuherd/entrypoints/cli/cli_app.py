"""`gpuherd`: one table of commands. A command's module is imported only when that command runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from gpuherd import __version__
from gpuherd.entrypoints.cli.cli_errors import (
    MEANINGS,
    ErrorReport,
    ExitCode,
    explained_exit_codes,
    print_error,
)
from gpuherd.entrypoints.cli.cli_output import CommandClock, Mode, Output, mode_of_words
from gpuherd.entrypoints.cli.command_runner import CommandContext, SystemTime
from gpuherd.settings_loading import SETTINGS_FILE, ServerAddress, find_server_address

ACCESS, CATALOGUE, CLOUD, EXPLAIN, GOALS, INSTANCES, LAUNCH, MONEY, REMOTE_RUN, SSH, WEBHOOKS = (
    f"gpuherd.entrypoints.cli.{subject}_commands"
    for subject in (
        *("access", "catalogue", "cloud", "explain", "goal", "instance"),
        *("launch", "money", "remote_run", "ssh", "webhook"),
    )
)
DEMO = "gpuherd.ops.demo"
OPERATOR, DATABASE = "gpuherd.ops.operator_commands", "gpuherd.ops.database_commands"
# Commands that `__main__` adds: they import what entrypoints must not.
BROUGHT = ""

# Section of the help -> command -> module, function, help text.
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Start here": {
        "demo": (DEMO, "demo", "Rent a simulated GPU, and see its signed webhook arrive."),
        "serve": (BROUGHT, "serve", "Run the service: API, workers and observer."),
        "doctor": (
            OPERATOR,
            "doctor",
            "Check settings, Novita, clock, disk, database, port, server and keys.",
        ),
        "config": (OPERATOR, "config", "Show every setting: its value, where it comes from, what it means."),
    },
    "Rent": {
        "offers": (CATALOGUE, "list_offers", "List what can be rented, where, and for how much."),
        "regions": (CATALOGUE, "list_regions", "List where instances can run."),
        "templates": (CATALOGUE, "list_templates", "List what can run on an instance."),
        "plan": (LAUNCH, "plan", "Show what `up` would rent, in which order and for how much."),
        "up": (LAUNCH, "up", "Rent an instance and follow it until it can be used."),
        "run": (REMOTE_RUN, "run", "Rent a machine, run a command in a copy of this folder, give it back."),
    },
    "Instances": {
        "ls": (INSTANCES, "list_instances", "List instances."),
        "show": (INSTANCES, "show", "Show everything about one instance."),
        "wait": (GOALS, "wait", "Follow an instance until it can be used, has stopped, or is gone."),
        "why": (EXPLAIN, "why", "Tell why an instance is as it is, and what it waits for."),
        "events": (EXPLAIN, "events", "Show what happened, oldest first."),
        "logs": (EXPLAIN, "logs", "Show the log of an instance."),
        "start": (GOALS, "start", "Start an instance that has exited."),
        "stop": (GOALS, "stop", "Stop an instance. Its data stays."),
        "restart": (GOALS, "restart", "Restart an instance that runs."),
        "replace": (GOALS, "replace", "Rent another machine for an instance, then delete the old one."),
        "rm": (GOALS, "rm", "Delete an instance with its machine and its data."),
        "lease": (INSTANCES, "lease", "Set when an instance ends."),
        "keep": (INSTANCES, "keep", "Say that an instance is in use, so that silence does not end it."),
        "ssh": (SSH, "ssh", "Log in to an instance, or run a command there."),
        "exec": (SSH, "execute", "Run a program on an instance."),
        "cp": (SSH, "cp", "Copy files or folders to an instance, or from it."),
        "open": (SSH, "open_page", "Open the Jupyter of an instance, or another page, in the browser."),
        "ssh-config": (SSH, "ssh_config", "Write an ssh configuration that names every instance."),
    },
    "Money": {
        "costs": (MONEY, "costs", "Show what was spent, and how sure that is."),
        "leftovers": (MONEY, "leftovers", "List everything that still costs money."),
        "balance": (MONEY, "balance", "Show what is left on the account, and how long it lasts."),
        "budgets": (MONEY, "budgets", "How much may be spent, and what happens when that is used up."),
    },
    "The account": {
        "volumes": (CATALOGUE, "volumes", "Network volumes: storage that outlives machines."),
        "prewarm": (CATALOGUE, "prewarm", "Pull an image into a region before a machine needs it."),
        "registry": (CATALOGUE, "registry", "Logins to registries with private images."),
        "secrets": (ACCESS, "secrets", "Values for variables of instances, kept encrypted."),
        "orphans": (CLOUD, "orphans", "Machines that cost money and belong to no instance."),
        "cloud": (CLOUD, "cloud", "What of the cloud is not believed."),
        "creates": (CLOUD, "creates", "Whether machines are rented, and why not."),
    },
    "The service": {
        "webhooks": (WEBHOOKS, "webhooks", "Who is told what happens, and whether it arrived."),
        "keys": (ACCESS, "keys", "Who else may use this server, how far, and how long."),
        "audit": (ACCESS, "audit", "Who did what."),
        "jobs": (CLOUD, "jobs", "The background jobs."),
        "mcp": (BROUGHT, "mcp", "Serve agents over the Model Context Protocol."),
        "simulator": (DEMO, "simulator", "Run a stand-alone double of Novita's API that costs nothing."),
        "backup": (DATABASE, "backup", "Copy the database of this machine, also while the server runs."),
        "restore": (DATABASE, "restore", "Put a copy in the place of the database."),
        "migrate": (DATABASE, "migrate", "Bring the database to this version and exit."),
        "db": (DATABASE, "db", "Move the database."),
    },
}
# The key of the typed words in the context.
WORDS = "gpuherd.words"
HELP_WIDTH = 100
NAMES = {name: target for section in COMMANDS.values() for name, target in section.items()}

EPILOG = f"""\
Settings: GPUHERD_URL (http://127.0.0.1:8080) is the server, GPUHERD_API_KEY the key; NO_COLOR is respected.
Tables on a terminal, JSON when piped or with --json; errors then are JSON on stderr too.

\b
{explained_exit_codes()}
"""


class GpuherdGroup(click.Group):
    """The root group. The help comes from the table, so that it imports no command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in NAMES and cmd_name not in self.commands:
            module, function, _ = NAMES[cmd_name]
            self.add_command(getattr(import_module(module), function), cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, _, help) in section.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # click itself only knows loaded commands.
            raise click.NoSuchCommand(error.command_name, possibilities=NAMES, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=help)
            for name, (_, _, help) in NAMES.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        words = tuple(args)
        with usage_errors_as_json(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[WORDS] = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with usage_errors_as_json(ctx.meta[WORDS]):
            return super().invoke(ctx)


@contextmanager
def usage_errors_as_json(words: Sequence[str]) -> Iterator[None]:
    """Print a usage error as JSON for programs; click prints it for people."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        if mode_of_words(words) is not Mode.JSON:
            raise
        path = error.ctx.command_path if error.ctx else "gpuherd"
        report = ErrorReport(
            ExitCode.USAGE,
            code="USAGE",
            title=MEANINGS[ExitCode.USAGE],
            detail=error.format_message(),
            suggestion=f"see how it is used with: {path} --help",
        )
        print_error(Output.for_command(SystemTime(), as_json=True), report)
        raise click.exceptions.Exit(int(ExitCode.USAGE)) from error


def build_cli(
    *commands: click.Command,
    find_server: Callable[[], ServerAddress] | None = None,
    clock: CommandClock | None = None,
    rng: Random | None = None,
) -> click.Group:
    """Return the complete `gpuherd`, with the commands of the table that the caller provides."""
    context = CommandContext(
        find_server or (lambda: find_server_address(settings_file=Path.cwd() / SETTINGS_FILE)),
        clock or SystemTime(),
        rng or SystemRandom(),
    )
    return GpuherdGroup(
        "gpuherd",
        commands={str(command.name): command for command in commands},
        help="Rent GPUs, follow them until they can be used, and never pay for one that nobody knows about.",
        epilog=EPILOG,
        no_args_is_help=True,
        params=[
            _flag("--version", _print_version, "Say the version."),
            _flag("--install-completion", _install_completion, "Install completion for the current shell."),
            _flag("--show-completion", _show_completion, "Show completion for the current shell."),
        ],
        context_settings={
            "obj": context,
            "help_option_names": ["-h", "--help"],
            "max_content_width": HELP_WIDTH,
        },
    )


def _flag(name: str, act: Callable[[click.Context], None], help: str) -> click.Option:
    """Return an option that acts instead of a command."""

    def callback(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            act(context)
            context.exit()

    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=help)


def _print_version(_: click.Context) -> None:
    click.echo(f"gpuherd {__version__}")


def _show_completion(context: click.Context) -> None:
    click.echo(_completion_script(context)[1])


def _install_completion(context: click.Context) -> None:
    """Write the completion script, and make the shell load it."""
    shell, script = _completion_script(context)
    folders = {"bash": ".bash_completions/gpuherd.sh", "zsh": ".zfunc/_gpuherd"}
    path = Path.home() / folders.get(shell, ".config/fish/completions/gpuherd.fish")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{script}\n")
    start = {
        "bash": (".bashrc", f"source '{path}'"),
        "zsh": (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    }
    if shell in start:
        name, line = start[shell]
        rc = Path.home() / name
        known = rc.read_text() if rc.exists() else ""
        if line not in known:
            rc.write_text(f"{known.rstrip()}\n\n{line}\n".lstrip())
    click.echo(f"{shell} completion installed in {path}")
    click.echo("Completion will take effect once you restart the terminal")


def _completion_script(context: click.Context) -> tuple[str, str]:
    shell = Path(os.environ.get("SHELL", "bash")).name
    kind = get_completion_class(shell) or get_completion_class("bash")
    assert kind is not None
    return kind.name, kind(context.command, {}, "gpuherd", "_GPUHERD_COMPLETE").source()
