"""`gpuherd secrets`, piped: a value comes in through the pipe, and is never printed or an argument."""

from __future__ import annotations

import json

from tests.cli.support import NOW, Answer, Cli, FakeApi, accepted, details, problem

CANARY = "canary-of-a-secret"
HF = {"name": "hf", "shared": False, "createdAt": NOW.isoformat(), "changedAt": NOW.isoformat()}


def test_a_value_is_read_from_the_pipe_and_not_printed(cli: Cli, api: FakeApi) -> None:
    api.script(HF)
    done = cli("secrets", "set", "hf", typed=f"{CANARY}\n")
    assert json.loads(done.stdout) == HF
    assert CANARY not in done.stdout + done.stderr
    (seen,) = api.seen
    assert (seen.method, seen.path, seen.body) == ("PUT", "/api/secrets/hf", {"value": CANARY})


def test_a_value_is_no_argument(cli: Cli, api: FakeApi) -> None:
    assert cli("secrets", "set", "hf", CANARY).exit_code == 2
    assert api.seen == []


def test_one_for_all_keys_is_set_and_removed_as_such(cli: Cli, api: FakeApi) -> None:
    api.script({**HF, "shared": True}, {"name": "hf", "removed": True})
    assert cli("secrets", "set", "hf", "--shared", "-q", typed=CANARY).stdout == "hf\n"
    assert cli("secrets", "rm", "hf", "--shared", "-q").stdout == "hf\n"
    assert api.seen[0].body == {"value": CANARY, "shared": True}
    assert (api.seen[1].method, api.seen[1].path) == ("DELETE", "/api/secrets/hf")
    assert api.seen[1].query == [("shared", "true")]


def test_a_refusal_does_not_repeat_the_value(cli: Cli, api: FakeApi) -> None:
    api.script(problem(409, "SECRETS_KEY_MISSING", detail="no key"))
    refused = cli("secrets", "set", "hf", typed=CANARY)
    assert refused.exit_code != 0
    assert CANARY not in refused.stdout + refused.stderr


def test_secrets_are_listed_and_sealed_again(cli: Cli, api: FakeApi) -> None:
    rotated = {"resealed": 1, "unreadable": [], "instancesLeft": 2}
    api.script({"secrets": [HF], "total": 1}, {"secrets": [HF], "total": 1}, rotated)
    assert json.loads(cli("secrets", "ls").stdout)["secrets"] == [HF]
    assert cli("secrets", "ls", "-q").stdout == "hf\n"
    assert json.loads(cli("secrets", "rotate").stdout) == rotated


def test_up_names_a_secret_instead_of_a_value(cli: Cli, api: FakeApi) -> None:
    api.script(Answer(accepted(), 201), details("ready"))
    words = ("--secret", "HF_TOKEN=hf", "--env", "MODE=train", "--image", "ubuntu")
    cli("up", "--yes", "--gpu", "4090", "--name", "train-1", *words)
    (seen,) = [it for it in api.seen if it.method == "POST"]
    assert seen.body is not None
    assert seen.body["envs"] == {"HF_TOKEN": {"secret": "hf"}, "MODE": "train"}
    assert cli("up", "--yes", "--gpu", "4090", "--image", "ubuntu", "--secret", "HF_TOKEN").exit_code == 2
