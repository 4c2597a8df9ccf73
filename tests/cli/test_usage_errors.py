"""What is left out: a bare group lists, and of what must be said is shown what there is, ready to paste."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from tests.cli.support import CLI, Answer, Cli, FakeApi, SeenRequest, problem

PRODUCTS = [
    {"productId": "p1", "productName": "H100", "available": True, "gpuHourlyPrice": "10.5"},
    {"productId": "p2", "productName": "RTX 4090 24GB", "available": True, "gpuHourlyPrice": "0.40"},
    {"productId": "p3", "productName": "RTX 4090 24GB", "available": True, "gpuHourlyPrice": "0.35"},
    {"productId": "p4", "productName": "sold out", "available": False},
]
TEMPLATES = [{"id": "106", "name": "broken", "problem": "no image"}, {"id": "101", "name": "Py\x1b[31mTorch"}]


def catalogue(seen: SeenRequest) -> Answer:
    bodies: dict[str, Any] = {
        "/api/products": {"products": PRODUCTS},
        "/api/templates": {"templates": TEMPLATES},
    }
    return Answer(bodies[seen.path])


@pytest.mark.parametrize("verb", ["up", "plan"])
@pytest.mark.parametrize(
    ("said", "example"),
    [
        ((), "--gpu 'RTX 4090 24GB' --template 101"),
        (("--gpu", "4090"), "--gpu 4090 --template 101"),
        (("--template", "102"), "--gpu 'RTX 4090 24GB' --template 102"),
    ],
)
def test_what_is_missing_is_shown(
    cli: Cli, api: FakeApi, verb: str, said: tuple[str, ...], example: str
) -> None:
    api.handler = catalogue
    result = cli(verb, *said)
    words = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert f"for example: gpuherd {verb} {example}" in words
    assert ("RTX 4090 24GB from $0.35/h H100 from $10.50/h" in words) == ("--gpu" not in said)
    assert ("101 Py\\x1b[31mTorch" in words) == ("--template" not in said)
    assert "sold out" not in words
    assert "broken" not in words
    assert "Missing option" in words
    assert result.stdout == ""


@pytest.mark.parametrize("answer", [problem(503, "CIRCUIT_BREAKER_OPEN"), Answer({"products": []})])
def test_without_an_answer_only_the_usual_is_said(cli: Cli, api: FakeApi, answer: Answer) -> None:
    api.script(answer)
    result = cli("up")
    assert result.exit_code == 2
    assert "Missing option" in result.stderr
    assert "for example" not in result.stderr


def test_other_commands_ask_nobody(cli: Cli, api: FakeApi) -> None:
    assert cli("show").exit_code == 2
    assert api.seen == []


def test_a_product_that_there_is_not_leads_to_the_list(cli: Cli, api: FakeApi) -> None:
    api.script(problem(404, "PRODUCT_NOT_FOUND"))
    assert "gpuherd offers" in cli("up", "--gpu", "x", "--template", "1", "--no-wait").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("costs", "--since", "5x", "--json"),
        ("costs", "--since", "5x"),
        ("costs", "--nope"),
        ("lease", "x", "--until", "y"),
        ("lease", "x"),
        ("show",),
        ("ls", "--json", "--quiet"),
        ("--nope",),
        ("frobnicate",),
    ],
)
def test_a_program_is_told_in_one_line_of_json_that_its_words_make_no_sense(
    cli: Cli, api: FakeApi, words: tuple[str, ...]
) -> None:
    result = cli(*words)
    (line,) = result.stderr.splitlines()
    error = json.loads(line)["error"]
    assert (result.exit_code, error["code"], error["exitCode"]) == (2, "USAGE", 2)
    assert error["detail"] and error["suggestion"].endswith("--help")
    assert (result.stdout, api.seen) == ("", [])


@pytest.mark.parametrize("words", [("ls", "-q", "--nope"), ("exec", "x", "--nope", "-q", "--", "--json")])
def test_who_wants_ids_only_is_told_in_words(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli(*words)
    assert result.exit_code == 2
    assert "No such option '--nope'" in result.stderr and "Usage:" in result.stderr


CONTEXT = click.Context(CLI)
COMMANDS = {name: CLI.get_command(CONTEXT, name) for name in CLI.list_commands(CONTEXT)}
GROUPS = {name: it for name, it in COMMANDS.items() if isinstance(it, click.Group) and name != "db"}
LISTED = sorted(name for name, it in GROUPS.items() if "ls" in it.commands)


def test_every_group_of_the_server_does_something_when_bare() -> None:
    assert all(it.invoke_without_command for it in GROUPS.values())


@pytest.mark.parametrize("name", LISTED)
def test_a_bare_group_is_its_list_with_the_same_options(cli: Cli, api: FakeApi, name: str) -> None:
    group = GROUPS[name]
    assert [it.opts for it in group.params] == [it.opts for it in group.commands["ls"].params]
    empty = ("endpoints", "keys", "secrets", "budgets", "volumes", "entries", "registryAuths", "prewarms")
    api.script({**{key: [] for key in empty}, "total": 0, "nextCursor": None})
    listed, bare = cli(name, "ls", "--json"), cli(name, "--json")
    assert (bare.exit_code, bare.stdout) == (listed.exit_code, listed.stdout) == (0, bare.stdout)
    first, second = api.seen
    assert (second.method, second.path, second.query) == (first.method, first.path, first.query)


def test_a_bare_group_takes_the_filters_of_its_list(cli: Cli, api: FakeApi) -> None:
    api.script({"prewarms": [], "total": 0})
    assert cli("prewarm", "--region", "CN-HK-01", "--json").exit_code == 0
    assert ("region", "CN-HK-01") in api.seen[0].query


def test_a_group_with_a_subcommand_lists_nothing_besides(cli: Cli, api: FakeApi) -> None:
    api.script({"id": "adaadaad"})
    assert cli("keys", "revoke", "adaadaad", "-q").stdout == "adaadaad\n"
    assert [(it.method, it.path) for it in api.seen] == [("DELETE", "/api/keys/adaadaad")]
