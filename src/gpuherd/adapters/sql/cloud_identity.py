"""The cloud that a database belongs to, in SQL: read, compared and written once, at the start."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.replica_tables import replica
from gpuherd.adapters.sql.schema.tables import attempt, installation, instance, orphan, sighting
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.cloud.identity import (
    CloudClaim,
    CloudIdentity,
    account_digest,
    account_flag,
    judge_claim,
)
from gpuherd.domain.instance.attempt import OPEN_STATES
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Status

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
    """Tell whether some process has said since then that it uses the database."""
    return database.write_now(lambda c: _has_replicas(c, seen_since))


def _stored(connection: sa.Connection) -> tuple[CloudIdentity, str] | None:
    # Replicas that start together do so one after the other.
    row = sa.select(installation.c.value).where(installation.c.key == "installation").with_for_update()
    connection.execute(row)
    value = connection.execute(
        sa.select(installation.c.value).where(installation.c.key == CLOUD_FLAG)
    ).scalar()
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
    known = sa.select(installation.c.value).where(installation.c.key == account_flag(account))
    if connection.execute(known).scalar() is not None:
        return True
    if _depends_on_account(connection):
        return False
    _write(connection, account_flag(account), f"{now.isoformat()} nothing depended on it")
    return True


def _has_order() -> sa.ColumnElement[bool]:
    return sa.exists().where(orphan.c.ordered.is_not(None), orphan.c.gone_at.is_(None))


def _holds_records(connection: sa.Connection) -> bool:
    """Tell whether anything is written down that is true of one cloud only."""
    query = sa.select(
        sa.or_(sa.exists().select_from(instance), sa.exists().select_from(attempt), _has_order())
    )
    return bool(connection.execute(query).scalar())


def _has_replicas(connection: sa.Connection, seen_since: datetime) -> bool:
    return bool(connection.execute(sa.select(sa.exists().where(replica.c.seen_at > seen_since))).scalar())


def _depends_on_account(connection: sa.Connection) -> bool:
    """Tell whether something would be lost, rented or removed by mistake on the account of somebody else."""
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
