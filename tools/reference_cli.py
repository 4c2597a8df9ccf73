"""The page about the command line: every command with its arguments, options and exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from gpuherd.__main__ import mcp, serve
from gpuherd.entrypoints.cli.cli_app import build_cli
from gpuherd.entrypoints.cli.cli_errors import MEANINGS
from tools.reference_text import NOTICE, code, table

# These are the same everywhere, and are explained once.
EVERYWHERE = {"--help", "--json"}

INTRODUCTION = """\
**Which server.** `GPUHERD_URL` and `GPUHERD_API_KEY` say where the server is and which key opens it.
Without them it is the server of this user on this machine, with the key that it made. `gpuherd config`
shows all settings, `gpuherd doctor` checks them.

**Which instance.** `NAME_OR_ID` is the name of an instance, its id, or the beginning of its id: `inst_` and
at least 4 characters more. What could mean several is refused with the candidates (exit code 5). A name
goes before the beginning of an id.

**Lists.** A noun by itself lists: `gpuherd keys` is `gpuherd keys ls`, with the same options.

**Output.** Tables on a terminal; JSON in a pipe, or with `--json`. Answers go to stdout, everything said
about them to stderr. In JSON mode an error is one line on stderr: `{"error": {"code", "title", "detail",
"suggestion", "exitCode", …}}`; [what the codes mean](troubleshooting.md). `--quiet` (`-q`) gives ids only,
one a line, or nothing where there is no id to give: `gpuherd ls -q --label job=7 | xargs -n1 gpuherd rm -y`.
`NO_COLOR` is respected. Ctrl-C while something is followed only detaches; the work goes on.

**Completion.** `gpuherd --install-completion` in bash, zsh or fish, then open a new terminal: Tab completes
commands, options and the names of your instances. The names come from the server, which is given one
second; without a server Tab is silent. A name that a shell could misread is offered as its id. `gpuherd
--show-completion` prints the script instead of installing it.
"""


def cli_page() -> str:
    """Return the page."""
    root = build_cli(serve, mcp)
    context = root.make_context("gpuherd", [], resilient_parsing=True)
    lines = ["# Command line", "", NOTICE, "", str(root.help), "", INTRODUCTION]
    lines += ["## Exit codes", ""]
    lines += table(("code", "meaning"), ((str(code.value), meaning) for code, meaning in MEANINGS.items()))
    lines += ["`gpuherd ssh` ends with the exit code of ssh itself.", ""]
    lines += ["## Commands", ""]
    found = list(_commands(root, context, "gpuherd"))
    lines += table(("command", ""), ((_link(path), _first(command)) for path, command, _ in found))
    for path, command, its_context in found:
        lines += _section(path, command, its_context)
    return "\n".join(lines).rstrip() + "\n"


def _commands(group: click.Group, context: click.Context, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each command that does something, in the order of the help."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        its_context = command.make_context(name, [], parent=context, resilient_parsing=True)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path} {name}", command, its_context
        if isinstance(command, click.Group):
            yield from _commands(command, its_context, f"{path} {name}")


def _section(path: str, command: Any, context: Any) -> list[str]:
    records = [
        (parameter.param_type_name, record)
        for parameter in command.params
        if not EVERYWHERE & set(parameter.opts) and (record := parameter.get_help_record(context)) is not None
    ]
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"### {path}", "", " ".join(str(command.help or "").split()), "", code(usage), ""]
    for kind, title in (("argument", "argument"), ("option", "option")):
        rows = [(code(names), meaning) for of, (names, meaning) in records if of == kind]
        lines += table((title, ""), rows)
    return lines


def _first(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return " ".join(str(command.help or "").split()).partition(". ")[0].rstrip(".")


def _link(path: str) -> str:
    return f"[{path}](#{path.replace(' ', '-')})"
