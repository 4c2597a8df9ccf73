"""Flags, which cloud a database belongs to, and where it lives."""

from __future__ import annotations

import json
import secrets
import shlex
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    installation,
    instance,
    orphan,
    sighting,
)
from gpuherd.adapters.sql.service_tables import replica
from gpuherd.adapters.sql.sql_types import insert_into
from gpuherd.adapters.stores.audit_store import append_audit_record
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.cloud.account_identity import (
    CloudClaim,
    CloudIdentity,
    account_digest,
    account_flag,
    judge_claim,
)
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Status
from gpuherd.domain.instance.rent_attempt import OPEN_STATES
from gpuherd.domain.secret import Secret


class SqlFlags:
    """The port `Flags`."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, key: str) -> str | None:
        return await self._database.read(lambda c: _value(c, key))

    async def first(self, *keys: str) -> str | None:
        def work(connection: sa.Connection) -> str | None:
            found = (_value(connection, key) for key in keys)
            return next((it for it in found if it is not None), None)

        return await self._database.read(work)

    async def swap(
        self, key: str, old: str | None, new: str | None, audit_record: AuditRecord | None = None
    ) -> bool:
        assert old is not None or new is not None, "nothing in the place of nothing is no change"

        def work(connection: sa.Connection) -> bool:
            found = sa.and_(installation.c.key == key, installation.c.value == old)
            change: sa.ReturnsRows
            if old is None:
                row = insert_into(connection, installation).values(key=key, value=new)
                change = row.on_conflict_do_nothing().returning(installation.c.key)
            elif new is None:
                change = sa.delete(installation).where(found).returning(installation.c.key)
            else:
                change = sa.update(installation).where(found).values(value=new).returning(installation.c.key)
            if connection.execute(change).first() is None:
                return False
            if audit_record is not None:
                append_audit_record(connection, audit_record)
            return True

        return await self._database.write(work, audited=audit_record is not None)

    async def put(self, key: str, value: str | None, audit_record: AuditRecord | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            if audit_record is not None:
                append_audit_record(connection, audit_record)
            if value is None:
                connection.execute(sa.delete(installation).where(installation.c.key == key))
                return
            row = insert_into(connection, installation).values(key=key, value=value)
            connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))

        await self._database.write(work, audited=audit_record is not None)

    def ensure(self, key: str, fresh: str) -> str:
        """Return what is stored under `key`, storing `fresh` first if nothing is."""

        def work(connection: sa.Connection) -> str:
            row = insert_into(connection, installation).values(key=key, value=fresh)
            connection.execute(row.on_conflict_do_nothing())
            return str(_value(connection, key))

        return self._database.write_now(work)


def _value(connection: sa.Connection, key: str) -> str | None:
    query = sa.select(installation.c.value).where(installation.c.key == key)
    value: str | None = connection.execute(query).scalar()
    return value


CLOUD_FLAG = "cloud"


@dataclass(frozen=True)
class ClaimedCloud:
    """What came of a claim: the cloud that the database belongs to, and whether the account is known."""

    claim: CloudClaim
    belongs_to: CloudIdentity
    account: str
    account_confirmed: bool


def claim_cloud(
    database: Database, asked: CloudIdentity, api_key: Secret, now: datetime, replica_timeout: timedelta
) -> ClaimedCloud:
    """Bind the database to a cloud, or find that it is bound to another one and change nothing.

    An account that was never seen here is confirmed at once only where nothing depends on it.
    """

    def work(connection: sa.Connection) -> ClaimedCloud:
        stored = _stored(connection)
        identity = None if stored is None else stored[0]
        in_use = _holds_records(connection) or _has_replicas(connection, now - replica_timeout)
        claim = judge_claim(identity, asked, holds_records=in_use)
        if claim is CloudClaim.REFUSED:
            assert identity is not None, "only another cloud is refused"
            return ClaimedCloud(claim, identity, "", account_confirmed=False)
        if stored is None or claim is CloudClaim.TAKES:
            salt = secrets.token_hex(16)
            _write(connection, CLOUD_FLAG, _text(asked, salt))
            if identity is not None:
                # The accounts of another cloud, whose salt is gone.
                _forget_accounts(connection)
        else:
            salt = stored[1]
        account = account_digest(salt, api_key)
        return ClaimedCloud(claim, asked, account, _is_confirmed(connection, account, now))

    return database.write_now(work)


def unbind_cloud(database: Database) -> CloudIdentity | None:
    """Let the database belong to no cloud, unless it is the simulator's; return to which it did.

    Its accounts are confirmed anew.
    """

    def work(connection: sa.Connection) -> CloudIdentity | None:
        stored = _stored(connection)
        if stored is None or stored[0].simulated:
            return None if stored is None else stored[0]
        connection.execute(sa.delete(installation).where(installation.c.key == CLOUD_FLAG))
        _forget_accounts(connection)
        return stored[0]

    return database.write_now(work)


def has_live_replicas(database: Database, seen_since: datetime) -> bool:
    """Return True if some process has said since then that it uses the database."""
    return database.write_now(lambda c: _has_replicas(c, seen_since))


def _stored(connection: sa.Connection) -> tuple[CloudIdentity, str] | None:
    # Replicas that start together do so one after the other.
    row = sa.select(installation.c.value).where(installation.c.key == "installation").with_for_update()
    connection.execute(row)
    value = _value(connection, CLOUD_FLAG)
    if value is None:
        return None
    doc = json.loads(value)
    return CloudIdentity(bool(doc["simulated"]), str(doc["baseUrl"])), str(doc["salt"])


def _text(it: CloudIdentity, salt: str) -> str:
    return json.dumps({"simulated": it.simulated, "baseUrl": it.base_url, "salt": salt})


def _write(connection: sa.Connection, key: str, value: str) -> None:
    row = insert_into(connection, installation).values(key=key, value=value)
    connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def _forget_accounts(connection: sa.Connection) -> None:
    connection.execute(sa.delete(installation).where(installation.c.key.startswith(account_flag(""))))


def _is_confirmed(connection: sa.Connection, account: str, now: datetime) -> bool:
    if _value(connection, account_flag(account)) is not None:
        return True
    if _depends_on_account(connection):
        return False
    _write(connection, account_flag(account), f"{now.isoformat()} nothing depended on it")
    return True


def _has_order() -> sa.ColumnElement[bool]:
    return sa.exists().where(orphan.c.ordered.is_not(None), orphan.c.gone_at.is_(None))


def _holds_records(connection: sa.Connection) -> bool:
    """Return True if anything is written down that is true of one cloud only."""
    query = sa.select(
        sa.or_(sa.exists().select_from(instance), sa.exists().select_from(attempt), _has_order())
    )
    return bool(connection.execute(query).scalar())


def _has_replicas(connection: sa.Connection, seen_since: datetime) -> bool:
    return bool(connection.execute(sa.select(sa.exists().where(replica.c.seen_at > seen_since))).scalar())


def _depends_on_account(connection: sa.Connection) -> bool:
    """Return True if something would be lost."""
    ended = [it.value for it in TERMINAL_STATUSES]
    unfinished = sa.exists().where(sa.or_(instance.c.status.not_in(ended), sa.not_(instance.c.settled)))
    # A failed one may have kept its machine.
    kept = sa.exists().where(
        instance.c.cloud_id == sighting.c.cloud_id,
        instance.c.status != Status.DELETED.value,
        sighting.c.missing_since.is_(None),
    )
    in_doubt = sa.exists().where(attempt.c.state.in_([it.value for it in OPEN_STATES]))
    return bool(connection.execute(sa.select(sa.or_(unfinished, kept, in_doubt, _has_order()))).scalar())


COPIED_FLAG = "copied_to"
HOME_FLAG = "home"


def copied_to(database: Database) -> str | None:
    """Return where the database was copied, and when, if another one has taken its place."""
    return database.write_now(lambda c: _value(c, COPIED_FLAG))


def replace_home(database: Database, home: str) -> str | None:
    """Write down from where it is served now; return from where it was before, if that was another place."""

    def work(connection: sa.Connection) -> str | None:
        before = _value(connection, HOME_FLAG)
        if before == home:
            return None
        row = insert_into(connection, installation).values(key=HOME_FLAG, value=home)
        connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": home}))
        return before

    return database.write_now(work)


def mark_copied(path: Path, where: str) -> None:
    """Leave a mark in a file, by which it refuses to be served beside its copy."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT OR REPLACE INTO installation VALUES (?, ?)", (COPIED_FLAG, where))


def unmark_copied(path: Path) -> None:
    """Take the mark back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM installation WHERE key = ?", (COPIED_FLAG,))


def unmark_command(path: Path) -> str:
    """Return what a person types to take the mark back."""
    statement = f"DELETE FROM installation WHERE key = '{COPIED_FLAG}'"  # noqa: S608  a constant, to be shown
    return f'sqlite3 {shlex.quote(str(path))} "{statement}"'


def mark_of_file(path: Path) -> str | None:
    """Return what the mark of a file says, None if it has none or cannot tell."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute(
                "SELECT value FROM installation WHERE key = ?", (COPIED_FLAG,)
            ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        # A damaged one may not be able to say.
        return None
    return None if row is None else str(row[0])
