"""The doctor asks the world: real sockets on loopback, real files, a real clock against a wrong one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuherd import __version__
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.ops.doctor import examine
from gpuherd.ops.doctor_results import CheckResult
from gpuherd.ports.clock_port import Clock
from tests.cli.support import Answer, FakeApi, SeenRequest, running_api
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import migrate_file

CANARY = "sk_canary-that-must-not-be-printed"
ADMIN = "admin-key-of-the-server"


@pytest.fixture
def novita() -> Iterator[FakeApi]:
    with running_api() as fake:
        fake.script({"data": []})
        yield fake


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with running_api() as fake:
        fake.handler = as_gpuherd
        yield fake


def as_gpuherd(seen: SeenRequest) -> Answer:
    match seen.path:
        case "/livez":
            return Answer({"status": "alive"})
        case "/health":
            return Answer({"status": "healthy"})
        case "/openapi.json":
            return Answer({"info": {"version": __version__}})
        case "/api/keys" if seen.headers.get("Authorization") == f"Bearer {ADMIN}":
            return Answer({"keys": []})
        case "/api/keys" if "Authorization" in seen.headers:
            return Answer({"details": {"scope": "read"}}, 403)
        case _:
            return Answer({}, 401)


class World:
    """One machine to examine."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environ = {"GPUHERD_DATA_DIR": str(folder / "data"), "GPUHERD_PORT": str(free_port())}

    def __call__(
        self, clock: Clock | None = None, *, limit_s: float = 15, **environ: str
    ) -> dict[str, CheckResult]:
        """The findings by what was checked; each thing is found once."""
        found = examine(clock or SystemClock(), {**self.environ, **environ}, self.folder, limit_s)
        assert len({it.check for it in found}) == len(found)
        return {it.check: it for it in found}

    def verdicts(self, clock: Clock | None = None, **environ: str) -> dict[str, str]:
        return {check: it.verdict.value for check, it in self(clock, limit_s=15, **environ).items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_fresh_machine_has_warnings_and_no_problem(world: World) -> None:
    assert world.verdicts() == {
        "settings": "ok",
        "novita": "warning",
        "data directory": "ok",
        "key files": "ok",
        "database": "ok",
        "port": "ok",
        "server": "warning",
    }


def test_everything_is_well_where_everything_runs(world: World, novita: FakeApi, server: FakeApi) -> None:
    data = world.folder / "data"
    data.mkdir(mode=0o700)
    migrate_file(data / "gpuherd.db")
    (data / "admin.key").touch(0o600)
    (data / "admin.key").write_text(ADMIN)
    verdicts = world.verdicts(
        NOVITA_API_KEY=CANARY, NOVITA_API_BASE_URL=novita.url, GPUHERD_PORT=str(server.port)
    )
    assert set(verdicts.values()) == {"ok"}
    assert {"novita", "clock", "key", "server"} < set(verdicts)
    assert [seen.headers["Authorization"] for seen in novita.seen] == [f"Bearer {CANARY}"]


def test_all_problems_of_the_settings_are_told_and_nothing_else_is_tried(
    world: World, novita: FakeApi
) -> None:
    (world.folder / "gpuherd.toml").write_text('log_level = "loud"\n')
    environ = {**world.environ, "GPUHERD_PORT": "x", "NOVITA_API_BASE_URL": novita.url, "GPUHERD_PROT": "1"}
    found = examine(SystemClock(), environ, world.folder)
    assert {(it.check, it.verdict.value) for it in found} == {
        ("settings", "problem"),
        ("settings", "warning"),
    }
    assert {it.facts.get("source") for it in found} == {"environment", "gpuherd.toml"}
    assert len(found) == 3
    assert novita.seen == []


def test_a_clock_that_is_wrong_is_found(world: World, novita: FakeApi) -> None:
    found = world(FakeClock(), NOVITA_API_KEY=CANARY, NOVITA_API_BASE_URL=novita.url)
    assert found["clock"].verdict == "warning"
    assert "behind" in found["clock"].message


def test_no_secret_is_ever_told(world: World, novita: FakeApi, server: FakeApi) -> None:
    novita.handler = lambda seen: Answer({"message": seen.headers["Authorization"]}, 401)
    found = world(
        NOVITA_API_KEY=CANARY,
        NOVITA_API_BASE_URL=novita.url,
        GPUHERD_API_KEY=CANARY,
        GPUHERD_ADMIN_KEY=CANARY,
        WEBHOOK_SECRET=CANARY,
        GPUHERD_URL=server.url,
        GPUHERD_DATABASE_URL=f"postgresql://me:{CANARY}@127.0.0.1:{free_port()}/herd",
    )
    assert found["novita"].verdict == "problem"
    assert found["database"].verdict == "problem"
    assert found["key"].facts["scope"] == "read"
    assert CANARY not in repr(found)


def test_a_stranger_on_our_port_is_found_and_gets_no_key(world: World, server: FakeApi) -> None:
    server.script({"hello": "world"})
    found = world(GPUHERD_PORT=str(server.port), GPUHERD_API_KEY=CANARY)
    assert (found["port"].verdict, found["server"].verdict) == ("problem", "problem")
    assert "key" not in found
    assert not any("Authorization" in seen.headers for seen in server.seen)


def test_for_a_server_elsewhere_nothing_here_is_checked(world: World) -> None:
    # Nobody is ever there (RFC 6761), so this must end with an answer all the same.
    found = world(GPUHERD_URL="http://gpuherd.invalid", GPUHERD_API_KEY=ADMIN)
    assert {"novita", "database", "port", "data directory"}.isdisjoint(found)
    assert found["server"].verdict == "problem"
    assert "unencrypted" in found["key"].message


def test_a_check_that_hangs_is_bounded_and_hides_no_other(world: World, server: FakeApi) -> None:
    release = threading.Event()

    def hang(_: SeenRequest) -> Answer:
        release.wait(30)
        return Answer({})

    server.handler = hang
    try:
        found = world(limit_s=0.3, GPUHERD_URL=server.url)
    finally:
        release.set()
    assert "not answered within 0.3 s" in found["server"].message
    assert found["data directory"].verdict == "ok"


def test_a_data_directory_that_cannot_be_made(world: World) -> None:
    (world.folder / "file").write_text("")
    found = world(GPUHERD_DATA_DIR=str(world.folder / "file" / "data"))
    assert found["data directory"].verdict == "problem"


def test_a_file_with_secrets_that_others_can_read(world: World) -> None:
    file = world.folder / "gpuherd.toml"
    file.write_text(f'webhook_secret = "{CANARY}"\n')
    file.chmod(0o644)
    assert world()["key files"].advice == f"chmod 600 {file}"
    file.chmod(0o600)
    assert world()["key files"].verdict == "ok"


def test_a_server_for_everybody_without_a_key_is_a_problem(world: World) -> None:
    found = examine(SystemClock(), {**world.environ, "GPUHERD_HOST": "0.0.0.0"}, world.folder)
    assert [it.verdict.value for it in found if it.check == "port"] == ["ok", "problem"]
