"""Tables of the service: replicas, jobs, webhooks, keys, sessions, secrets, audit."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.sql_types import Moment

metadata = sa.MetaData()


# Leader leases. A replica that takes one over gets a higher fencing token (`fence`), by which later writes of
# the one before are known, and refused.
duty = sa.Table(
    "duty",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # Empty when it was released.
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("until", Moment, nullable=False),
)


replica = sa.Table(
    "replica",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    # The machine and process, for people.
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("seen_at", Moment, nullable=False),
)


# Sealed with a key that is not in the database.
named_secret = sa.Table(
    "named_secret",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
)


api_key = sa.Table(
    "api_key",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # SHA-256 of the key: the key itself is nowhere.
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("max_gpus", sa.Integer),
    sa.Column("max_hourly_usd", sa.Text),
    sa.Column("max_lease_s", sa.Integer),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("expires_at", Moment),
    sa.Column("last_used_at", Moment),
    sa.Column("revoked_at", Moment),
    # Of the webhook secret; all null of a key for which the common one signs.
    sa.Column("webhook_nonce", sa.Text),
    sa.Column("webhook_root", sa.Text),
    sa.Column("webhook_generation", sa.Integer),
    sa.Column("webhook_rotated_at", Moment),
    sa.Column("webhook_previous_nonce", sa.Text),
    sa.Column("webhook_previous_root", sa.Text),
)


# What was signed out of, for as long as its cookie would have been good; all other sessions are in no table.
ended_session = sa.Table(
    "ended_session",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Index("ended_session_by_end", "expires_at"),
)


# Triggers of the migrations forbid to change a row, and to delete one after the anchor.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("n", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("after", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)


# One row at most: the last entry of the audit log that was pruned.
audit_anchor = sa.Table(
    "audit_anchor",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("n", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)


delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("instance_id", sa.Text, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    # The bytes that are signed and sent, the same at every try.
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("next_at", Moment),
    sa.Column("delivered_at", Moment),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.Text, nullable=False),
    sa.Column("endpoint_id", sa.Text),
    sa.Column("tried_at", Moment),
    sa.Column("expires_at", Moment),
    # These two are empty in rows of an older version.
    sa.Column("replays", sa.Integer),
    sa.Column("log", sa.Text),
    # The API key whose secret signs; empty of an endpoint's, and in rows of an older version.
    sa.Column("owner", sa.Text),
    sa.Index("delivery_by_instance", "instance_id", "sequence"),
    sa.Index("delivery_by_state", "state", "id"),
    sa.Index("delivery_by_endpoint", "endpoint_id", "id"),
)


webhook_endpoint = sa.Table(
    "webhook_endpoint",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    # No secret: it is derived from a root key that is not in the database, of which this is a fingerprint.
    sa.Column("root", sa.Text, nullable=False),
    # Types in alphabetical order with blanks between; empty for all.
    sa.Column("events", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("rotated_at", Moment),
    sa.Column("previous_root", sa.Text, nullable=False),
    sa.Column("disabled_at", Moment),
    sa.Column("disabled_reason", sa.Text, nullable=False),
    # The random part of its secret, which without the root key is worth nothing.
    sa.Column("nonce", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("previous_nonce", sa.Text, nullable=False, server_default=sa.text("''")),
    # How events are written for it.
    sa.Column("kind", sa.Text, nullable=False, server_default=sa.text("'webhook'")),
)


_LIVE = sa.text("completed_at IS NULL")


job = sa.Table(
    "job",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("instance_id", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    # PENDING, PROCESSING, COMPLETED or FAILED.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("processed_at", Moment),
    sa.Column("completed_at", Moment),
    sa.Column("error", sa.Text, nullable=False),
    # When its next pass is due. While it is PROCESSING: somebody woke it, and the pass has not seen why.
    sa.Column("due_at", Moment),
    # How many processes in a row have begun a pass and not ended it.
    sa.Column("takes", sa.Integer, nullable=False, server_default="0"),
    sa.Index("one_live_job", "key", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    sa.Index("job_due", "state", "due_at"),
    # The state too, or SQLite would rather go through all jobs in that state.
    sa.Index("job_by_instance", "instance_id", "state"),
    sa.Index("job_by_state", "state", "id"),
)


is_live = job.c.completed_at.is_(None)
is_pending = job.c.state == sa.literal_column("'PENDING'")
