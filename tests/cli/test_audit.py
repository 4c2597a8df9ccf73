"""`gpuherd keys` and `gpuherd audit`, piped."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.audit import (
    NO_HASH,
    PRUNE_ACTION,
    AuditAnchor,
    AuditEntry,
    AuditRecord,
    chained,
)
from gpuherd.usecases.views.access_view import describe_entry
from tests.cli.support import NOW, Answer, Cli, FakeApi, SeenRequest, problem

KEY = {"id": "adaadaad", "scopes": ["read"], "status": "active", "limits": {}, "createdAt": NOW.isoformat()}


def test_a_key_is_made_with_all_its_limits(cli: Cli, api: FakeApi) -> None:
    api.script({**KEY, "key": "ghk_adaadaad_x"})
    words = ("--scope", "read", "--scope", "write", "--expires", "30d", "--label", "ci", "--max-gpus", "4")
    made = cli("keys", "create", *words, "--max-usd-per-hour", "1.50", "--rpm", "60", "--max-lease", "8h")
    assert json.loads(made.stdout)["key"] == "ghk_adaadaad_x"
    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", "/api/keys")
    assert seen.body == {
        "scopes": ["read", "write"],
        "label": "ci",
        "expiresAt": (NOW + timedelta(days=30)).isoformat(),
        "limits": {"maxGpus": 4, "maxHourlyUsd": "1.50", "requestsPerMinute": 60, "maxLeaseSeconds": 28_800},
    }


def test_what_was_not_said_is_not_sent_and_quiet_gives_the_key_alone(cli: Cli, api: FakeApi) -> None:
    api.script({**KEY, "key": "ghk_adaadaad_x"})
    assert cli("keys", "create", "--scope", "admin", "-q").stdout == "ghk_adaadaad_x\n"
    assert api.seen[0].body == {"scopes": ["admin"]}


@pytest.mark.parametrize("words", [(), ("--scope", "root"), ("--scope", "read", "--expires", "soon")])
def test_a_key_that_makes_no_sense_is_not_asked_for(cli: Cli, api: FakeApi, words: tuple[str, ...]) -> None:
    assert cli("keys", "create", *words).exit_code == 2
    assert api.seen == []


def test_keys_are_listed_and_revoked(cli: Cli, api: FakeApi) -> None:
    api.script({"keys": [KEY], "total": 1}, {"keys": [KEY], "total": 1}, {**KEY, "status": "revoked"})
    assert json.loads(cli("keys", "ls").stdout)["keys"] == [KEY]
    assert cli("keys", "ls", "-q").stdout == "adaadaad\n"
    assert json.loads(cli("keys", "revoke", "ada/x").stdout)["status"] == "revoked"
    assert (api.seen[2].method, api.seen[2].path) == ("DELETE", "/api/keys/ada%2Fx")


def test_the_limit_of_a_key_has_an_exit_code_of_its_own(cli: Cli, api: FakeApi) -> None:
    api.script(problem(429, "QUOTA_EXCEEDED", detail="this key holds 1 of 1 GPUs"))
    assert cli("keys", "ls").exit_code == 7
    api.script(problem(403, "FORBIDDEN"))
    assert cli("keys", "ls").exit_code == 3


def log(count: int) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for n in range(count):
        last = entries[-1] if entries else None
        audit_record = AuditRecord(
            NOW + timedelta(microseconds=n), "adaadaad", "key.create", f"k{n}", "", "{}", "req_1"
        )
        entries.append(chained(audit_record, last.n if last else 0, last.hash if last else NO_HASH))
    return entries


def serving(entries: list[AuditEntry], anchor: AuditAnchor | None = None) -> Any:
    """Answer like the server, page by page."""

    def answer(seen: SeenRequest) -> Answer:
        query = dict(seen.query)
        assert query["order"] == "asc"
        limit = int(query["limit"])
        after = [it for it in entries if it.n > int(query.get("cursor", 0))]
        more = str(after[limit - 1].n) if len(after) > limit else None
        shown = [describe_entry(it).model_dump(mode="json") for it in after[:limit]]
        begin = None if anchor is None else vars(anchor)
        return Answer({"entries": shown, "total": len(entries), "nextCursor": more, "anchor": begin})

    return answer


@pytest.mark.parametrize("count", [0, 1, 100, 250])
def test_an_untouched_log_is_verified_to_its_end(cli: Cli, api: FakeApi, count: int) -> None:
    entries = log(count)
    api.script(serving(entries))
    done = cli("audit", "verify")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "intact": True,
        "entries": count,
        "lastHash": entries[-1].hash if entries else NO_HASH,
        "brokenAt": None,
        "prunedUpTo": 0,
    }


@pytest.mark.parametrize("n", [1, 2, 100, 101, 249])
def test_the_first_broken_entry_is_named(cli: Cli, api: FakeApi, n: int) -> None:
    entries = log(250)
    it = entries[n - 1]
    for forked in ([replace(it, audit_record=replace(it.audit_record, actor="nobody"))], []):
        api.script(serving([*entries[: n - 1], *forked, *entries[n:]]))
        done = cli("audit", "verify")
        assert done.exit_code == 1
        assert json.loads(done.stdout)["brokenAt"] == n


def pruned_log(told_of: int) -> list[AuditEntry]:
    """Return 250 entries of which the last tells that the log was pruned up to the given one."""
    entries = log(249)
    it = entries[told_of - 1]
    told = AuditRecord(NOW, "retention", PRUNE_ACTION, str(it.n), NO_HASH, it.hash)
    return [*entries, chained(told, 249, entries[-1].hash)]


def test_a_pruned_log_is_verified_from_its_anchor(cli: Cli, api: FakeApi) -> None:
    entries = pruned_log(100)
    api.script(serving(entries[100:], AuditAnchor(100, entries[99].hash)))
    done = cli("audit", "verify")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "intact": True,
        "entries": 150,
        "lastHash": entries[-1].hash,
        "brokenAt": None,
        "prunedUpTo": 100,
    }


@pytest.mark.parametrize("cut", [101, 120, 249])
def test_an_anchor_that_the_log_does_not_tell_of_is_named(cli: Cli, api: FakeApi, cut: int) -> None:
    entries = pruned_log(100)
    api.script(serving(entries[cut:], AuditAnchor(cut, entries[cut - 1].hash)))
    done = cli("audit", "verify")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["brokenAt"] == cut


def test_entries_missing_behind_the_anchor_are_named(cli: Cli, api: FakeApi) -> None:
    entries = pruned_log(100)
    api.script(serving(entries[120:], AuditAnchor(100, entries[99].hash)))
    assert json.loads(cli("audit", "verify").stdout)["brokenAt"] == 101


def test_a_log_that_is_pruned_meanwhile_is_verified_again(cli: Cli, api: FakeApi) -> None:
    entries = pruned_log(200)
    before, after = serving(entries), serving(entries[200:], AuditAnchor(200, entries[199].hash))
    answers = iter([before])

    def answer(seen: SeenRequest) -> Answer:
        found: Answer = next(answers, after)(seen)
        return found

    api.script(answer)
    assert json.loads(cli("audit", "verify").stdout)["prunedUpTo"] == 200


def test_the_log_is_listed(cli: Cli, api: FakeApi) -> None:
    shown = [describe_entry(it).model_dump(mode="json") for it in log(2)]
    api.script({"entries": shown, "total": 2, "nextCursor": None})
    assert json.loads(cli("audit", "ls", "--limit", "2").stdout)["entries"] == shown
    assert (api.seen[0].path, api.seen[0].query) == ("/api/audit", [("limit", "2")])
