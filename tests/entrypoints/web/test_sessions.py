"""Sessions: what a token proves, and what ends it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.clock_port import Ids
from gpuherd.usecases.access.manage_keys import revoke_key
from gpuherd.usecases.access.sign_in import SESSION_LIFETIME, Sessions
from tests.entrypoints.http.conftest import KEY
from tests.entrypoints.web.conftest import Browser
from tests.support.fake_clock import FakeClock
from tests.support.keys import make_key
from tests.support.memory.revoked_sessions import MemoryRevokedSessions


def sessions_at(
    clock: FakeClock, root: str = "a root that nobody knows", ended: MemoryRevokedSessions | None = None
) -> Sessions:
    return Sessions(
        Secret(root), ended or MemoryRevokedSessions(), clock, Ids(clock, random.Random(1)), rounds=1
    )


class TestTokens:
    def test_a_token_is_read_back(self) -> None:
        sessions = sessions_at(FakeClock())
        session = sessions.verified(sessions.open("abcd1234"))
        assert session is not None
        assert session.key_id == "abcd1234"

    def test_it_ends_after_twelve_hours(self) -> None:
        clock = FakeClock()
        token = sessions_at(clock).open("admin")
        nearly = FakeClock(clock.now() + SESSION_LIFETIME - timedelta(seconds=1))
        over = FakeClock(clock.now() + SESSION_LIFETIME)
        assert sessions_at(nearly).verified(token) is not None
        assert sessions_at(over).verified(token) is None

    @given(place=st.integers(min_value=0), char=st.sampled_from("0123456789abcdefghijklmnopqrstuvwxyz._-"))
    def test_no_character_of_a_token_can_be_changed(self, place: int, char: str) -> None:
        sessions = sessions_at(FakeClock())
        token = sessions.open("abcd1234")
        place %= len(token)
        forged = token[:place] + char + token[place + 1 :]
        assert (sessions.verified(forged) is None) == (forged != token)

    @given(st.text(max_size=400))
    def test_nonsense_is_no_session(self, token: str) -> None:
        assert sessions_at(FakeClock()).verified(token) is None

    def test_another_root_makes_all_tokens_worthless(self) -> None:
        clock = FakeClock()
        token = sessions_at(clock).open("admin")
        assert sessions_at(clock, "the next admin key").verified(token) is None

    def test_every_session_has_a_word_for_forms_of_its_own(self) -> None:
        sessions = sessions_at(FakeClock())
        first, second = sessions.verified(sessions.open("a")), sessions.verified(sessions.open("a"))
        assert first and second
        assert first.form_token != second.form_token
        assert first.form_token not in sessions.open("a")

    async def test_what_one_replica_signed_out_of_is_over_in_the_next(self) -> None:
        clock, ended = FakeClock(), MemoryRevokedSessions()
        here, there = sessions_at(clock, ended=ended), sessions_at(clock, ended=ended)
        token, other = here.open("a"), here.open("a")
        session = await there.read(token)
        assert session is not None
        await here.end(session, ADMIN.audit_record("session.end", "a", clock.now()))
        assert await there.read(token) is None
        assert await there.read(other) is not None

    async def test_only_what_proves_something_is_looked_up(self) -> None:
        ended = MemoryRevokedSessions()
        sessions = sessions_at(FakeClock(), ended=ended)
        assert await sessions.read("nonsense") is None
        assert ended.reads == 0
        assert await sessions.read(sessions.open("a")) is not None
        assert ended.reads == 1

    async def test_while_nobody_can_tell_it_opens_nothing(self) -> None:
        ended = MemoryRevokedSessions()
        sessions = sessions_at(FakeClock(), ended=ended)
        ended.is_away = True
        with pytest.raises(StoreUnavailable):
            await sessions.read(sessions.open("a"))


class TestSigningIn:
    async def test_a_right_key_opens_a_session_and_leads_to_where_one_wanted(
        self, signed_out: Browser
    ) -> None:
        reply = await signed_out.client.post("/login", data={"api_key": KEY, "next": "/jobs?status=FAILED"})
        assert (reply.status_code, reply.headers["location"]) == (303, "/jobs?status=FAILED")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "max-age=43200" in cookie
        assert "secure" not in cookie
        assert KEY not in reply.headers["set-cookie"]
        assert (await signed_out.open("/")).status_code == 200

    async def test_over_tls_the_cookie_is_for_tls_only(self, signed_out: Browser) -> None:
        reply = await signed_out.sign_in(KEY, Origin="https://gpuherd")
        assert reply.headers["set-cookie"].startswith("__Host-gpuherd_session=")
        assert "Secure" in reply.headers["set-cookie"]
        token = reply.headers["set-cookie"].split(";")[0]
        signed_out.client.cookies.clear()
        assert (await signed_out.open("/", Cookie=token)).status_code == 200

    async def test_a_wrong_key_gets_the_same_page_and_a_sentence(self, signed_out: Browser) -> None:
        reply = await signed_out.sign_in("ghk_wrong")
        assert reply.status_code == 401
        assert "does not open anything" in reply.text
        assert "ghk_wrong" not in reply.text
        assert "set-cookie" not in reply.headers

    @pytest.mark.parametrize(
        "target", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\nb"]
    )
    async def test_the_way_back_never_leads_elsewhere(self, signed_out: Browser, target: str) -> None:
        reply = await signed_out.client.post("/login", data={"api_key": KEY, "next": target})
        assert reply.headers["location"] == "/"

    async def test_ten_wrong_keys_are_enough_for_a_while(self, signed_out: Browser, clock: FakeClock) -> None:
        for _ in range(10):
            assert (await signed_out.sign_in("ghk_wrong")).status_code == 401
        refused = await signed_out.sign_in(KEY)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        await clock.sleep(10)
        assert (await signed_out.sign_in(KEY)).status_code == 303

    async def test_right_keys_are_not_counted(self, signed_out: Browser) -> None:
        for _ in range(15):
            assert (await signed_out.sign_in(KEY)).status_code == 303

    async def test_signing_in_and_out_is_in_the_audit_log(self, admin: Browser, plane: Plane) -> None:
        await admin.send("/logout")
        entries = (await plane.services.stores.audit.page(10)).entries
        assert [it.audit_record.action for it in entries] == ["session.end", "session.open"]


class TestTheEnd:
    async def test_signing_out_ends_the_session_even_for_who_kept_the_cookie(self, admin: Browser) -> None:
        kept = dict(admin.client.cookies)
        reply = await admin.send("/logout")
        assert (reply.status_code, reply.headers["location"]) == (303, "/login")
        assert 'gpuherd_session=""' in reply.headers["set-cookie"]
        admin.client.cookies.clear()
        admin.client.cookies.update(kept)
        assert (await admin.open("/")).status_code == 303

    async def test_a_revoked_key_ends_its_sessions_at_once(self, signed_out: Browser, plane: Plane) -> None:
        made = await make_key(plane, "write")
        await signed_out.sign_in(made.secret.reveal())
        assert (await signed_out.open("/")).status_code == 200
        await revoke_key(plane.services, made.key.id, ADMIN)
        assert (await signed_out.open("/")).status_code == 303

    async def test_an_expired_key_ends_its_sessions(
        self, signed_out: Browser, plane: Plane, clock: FakeClock
    ) -> None:
        made = await make_key(plane, "read", expires_at=clock.now() + timedelta(hours=1))
        await signed_out.sign_in(made.secret.reveal())
        assert (await signed_out.open("/")).status_code == 200
        await clock.sleep(3601)
        assert (await signed_out.open("/")).status_code == 303
