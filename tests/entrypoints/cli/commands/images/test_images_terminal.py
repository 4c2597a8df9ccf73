"""Templates and registry credentials on a terminal: strange names are tame, and a removal is asked about."""

from __future__ import annotations

import pytest

from tests.entrypoints.cli.support import FakeApi
from tests.entrypoints.cli.terminal import RICH, terminal

pytestmark = pytest.mark.processes

EVIL = "evil\x1b]0;owned\x07\u202e"
SEEN = r"evil\x1b]0;owned\x07\u202e"
LOGIN = {"id": EVIL, "name": EVIL, "username": EVIL}
MINE = {"id": EVIL, "templateId": EVIL, "name": EVIL, "imageUrl": "a:1", "ports": [], "envNames": []}
REMOVED = {"id": EVIL, "removed": True}
CANARY = "canary-of-a-registry"


def on_screen(api: FakeApi, *argv: str, question: str = "", answer: str = "") -> tuple[int, str]:
    """Return the exit code and all that stood on the screen, in which nothing may command it."""
    with terminal(api.url, *argv, columns=200) as screen:
        if question:
            screen.until(question)
            screen.type(answer)
        code = screen.end()
    rest = RICH.sub("", screen.raw).replace("\r", "")
    assert all(char == "\n" or char.isprintable() for char in rest), repr(rest)
    return code, rest


def test_what_was_made_or_changed_is_shown_tame(api: FakeApi) -> None:
    api.script(MINE)
    made = on_screen(api, "templates", "create", "mine", "--image", "a:1")
    assert made == (0, f"{SEEN} is made\nuse it with: gpuherd up … --template {SEEN}\n")
    assert on_screen(api, "templates", "change", "7", "--image", "a:2") == (0, f"{SEEN} is changed\n")
    api.script(LOGIN)
    create = ("registry", "create", "team", "--username", "robot")
    # Typed as soon as anything is asked: by then the terminal must not show it any more.
    code, said = on_screen(api, *create, question="p", answer=f"{CANARY}\r")
    assert code == 0 and api.seen[-1].body["password"] == CANARY
    assert f"{SEEN} is kept by the cloud\nuse it with: gpuherd up … --registry-auth {SEEN}\n" in said
    assert CANARY not in said, "it is typed unseen"


@pytest.mark.parametrize(
    ("argv", "listed", "question"),
    [
        (
            ("registry", "rm", EVIL),
            {"registryAuths": [LOGIN], "total": 1},
            f"Remove the login of {SEEN} ({SEEN})?",
        ),
        (("templates", "rm", "7"), MINE, f"Remove {SEEN} ({SEEN})?"),
    ],
)
def test_a_removal_is_asked_about(
    api: FakeApi, argv: tuple[str, ...], listed: dict[str, object], question: str
) -> None:
    api.script(listed)
    code, said = on_screen(api, *argv, question=question, answer="n\r")
    assert code == 1 and "nothing was removed" in said
    assert [it.method for it in api.seen] == ["GET"]
    api.script(listed, REMOVED)
    code, said = on_screen(api, *argv, question=question, answer="y\r")
    assert (code, api.seen[-1].method) == (0, "DELETE")
    assert said.endswith(f"removed {SEEN}\n")
