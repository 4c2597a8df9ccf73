"""The tables, as SQLAlchemy Core sees them. Migrations make them; this file only describes them."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment
from gpuherd.adapters.sql.schema import plan_tables

# Handed on from file to file, so that an import from here has all tables, whatever else is loaded.
metadata = plan_tables.metadata

# Of what it will cost an hour, so much is in no span yet; less than a micro-dollar was lost in rounding.
UNBILLED = "gpus > 0 AND micro_usd > cost_rate_nusd_h / 1000 + 1"

installation = sa.Table(
    "installation",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

instance = sa.Table(
    "instance",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("goal", sa.Text, nullable=False),
    sa.Column("settled", sa.Boolean, nullable=False),
    sa.Column("cloud_id", sa.Text, unique=True),
    sa.Column("product_name", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("ready_at", Moment),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("lease_token", sa.Text),
    sa.Column("lease_until", Moment),
    # Everything that is only ever read together with the row.
    sa.Column("doc", sa.Text, nullable=False),
    # The id of the key that it was made with.
    sa.Column("owner", sa.Text, nullable=False, server_default="admin"),
    # What it holds now and costs an hour, so that a key's use can be summed up.
    sa.Column("gpus", sa.Integer, nullable=False, server_default="0"),
    sa.Column("micro_usd", sa.BigInteger, nullable=False, server_default="0"),
    # How many passes in a row have ended with the process that had them.
    sa.Column("takeovers", sa.Integer, nullable=False, server_default="0"),
    # What its spans came to when one was last opened or closed, and cost an hour since. Not in the document,
    # nor counted by the version: a turn must not lose its save because the meter has moved.
    sa.Column("cost_nusd", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost_doubt_nusd", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost_rate_nusd_h", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost_at", Moment),
    # When it must be looked at next although nothing changes: the end of a lease, say.
    sa.Column("due_at", Moment),
    # When to find out next whether it is idle; apart, because that may be late, and is no job of a turn.
    sa.Column("use_look_at", Moment),
    # When its lease ends, else how long it will be once it begins, so that what is promised can be summed up.
    sa.Column("lease_ends_at", Moment),
    sa.Column("lease_s", sa.BigInteger),
    # Since when it is in line for capacity, while it is.
    sa.Column("waits_since", Moment),
    # The id of the first of the instances that take over from one another, and which of them it is.
    sa.Column("lineage", sa.Text),
    sa.Column("link", sa.Integer),
    # What its product is called in the catalogue, once it is rented; `product_name` is how it was wished for.
    sa.Column("rented_product", sa.Text),
    # The database itself forbids two heirs of one instance.
    sa.Index(
        "one_heir",
        "lineage",
        "link",
        unique=True,
        sqlite_where=sa.text("lineage IS NOT NULL"),
        postgresql_where=sa.text("lineage IS NOT NULL"),
    ),
    sa.Index("instance_by_name", "name"),
    sa.Index("instance_by_owner", "owner", "id"),
    sa.Index(
        "instance_holding",
        "owner",
        "gpus",
        "micro_usd",
        sqlite_where=sa.text("gpus > 0"),
        postgresql_where=sa.text("gpus > 0"),
    ),
    sa.Index(
        "instance_stopped_disks",
        "owner",
        "micro_usd",
        sqlite_where=sa.text("gpus = 0 AND micro_usd > 0"),
        postgresql_where=sa.text("gpus = 0 AND micro_usd > 0"),
    ),
    sa.Index(
        "instance_unbilled",
        "owner",
        "micro_usd",
        "cost_rate_nusd_h",
        sqlite_where=sa.text(UNBILLED),
        postgresql_where=sa.text(UNBILLED),
    ),
    sa.Index("instance_by_status", "status", "id"),
    sa.Index(
        "instance_unsettled",
        "id",
        sqlite_where=sa.text("NOT settled"),
        postgresql_where=sa.text("NOT settled"),
    ),
    sa.Index(
        "instance_due",
        "due_at",
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    ),
    sa.Index(
        "instance_use_look",
        "use_look_at",
        sqlite_where=sa.text("use_look_at IS NOT NULL"),
        postgresql_where=sa.text("use_look_at IS NOT NULL"),
    ),
    sa.Index(
        "instance_in_line",
        "waits_since",
        sqlite_where=sa.text("waits_since IS NOT NULL"),
        postgresql_where=sa.text("waits_since IS NOT NULL"),
    ),
    sa.Index(
        "instance_ready_times",
        "rented_product",
        "ready_at",
        sqlite_where=sa.text("ready_at IS NOT NULL"),
        postgresql_where=sa.text("ready_at IS NOT NULL"),
    ),
)

instance_label = sa.Table(
    "instance_label",
    metadata,
    sa.Column("instance_id", sa.Text, sa.ForeignKey("instance.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Index("instance_label_by_value", "key", "value", "instance_id"),
)

operation = sa.Table(
    "operation",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("instance_id", sa.Text, sa.ForeignKey("instance.id", ondelete="CASCADE"), nullable=False),
    sa.Column("requested_at", Moment, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("operation_by_instance", "instance_id", "requested_at"),
)

claim = sa.Table(
    "claim",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("instance_id", sa.Text, sa.ForeignKey("instance.id")),
    sa.Column("created_at", Moment, nullable=False),
    # What the claim stands for: the making of the instance, an operation on it, or any other request.
    sa.Column("operation_id", sa.Text),
    sa.Column("reply", sa.Text),
    sa.Index("claim_by_age", "created_at"),
    sa.Index("claim_by_instance", "instance_id"),
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

_OPEN = sa.text("state IN ('sent', 'unknown')")

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("instance_id", sa.Text, sa.ForeignKey("instance.id"), primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True),
    sa.Column("tag", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("sent_at", Moment, nullable=False),
    sa.Column("cloud_id", sa.Text),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Column("billing_mode", sa.Text),
    sa.Column("sent_reading", sa.Text),
    # The database itself forbids two create calls of unknown outcome for one instance.
    sa.Index("one_open_attempt", "instance_id", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    sa.Index("attempt_by_cloud_id", "cloud_id"),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("instance_id", sa.Text, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.UniqueConstraint("instance_id", "sequence", name="event_in_order"),
    sqlite_autoincrement=True,
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

sighting = sa.Table(
    "sighting",
    metadata,
    sa.Column("cloud_id", sa.Text, primary_key=True),
    sa.Column("tag", sa.Text),
    sa.Column("first_seen_at", Moment, nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
    sa.Column("missing_since", Moment),
    sa.Column("missing_lists", sa.Integer, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    # The instance that the tag names, of whichever installation.
    sa.Column("tagged_instance_id", sa.Text),
    sa.Index("sighting_by_tag", "tag"),
    sa.Index("sighting_by_tagged_instance", "tagged_instance_id"),
)

orphan = sa.Table(
    "orphan",
    metadata,
    sa.Column("cloud_id", sa.Text, primary_key=True),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("first_seen_at", Moment, nullable=False),
    sa.Column("judged_at", Moment, nullable=False),
    sa.Column("confirmed_at", Moment),
    sa.Column("ordered", sa.Text),
    sa.Column("ordered_at", Moment),
    sa.Column("ordered_by", sa.Text, nullable=False),
    sa.Column("asked_at", Moment),
    # When it left the ledger: gone from the cloud, adopted, or claimed by its instance.
    sa.Column("gone_at", Moment),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("orphan_by_end", "gone_at"),
)

list_record = sa.Table(
    "list_record",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("finished_at", Moment, nullable=False),
    sa.Column("complete", sa.Boolean, nullable=False),
    sa.Column("witness", sa.Text, nullable=False),
    sa.Column("machines", sa.Integer, nullable=False),
    # Two readings of one moment, by the wall clock and since a boot of the host; null where nobody took them.
    sa.Column("read_at", Moment),
    sa.Column("boottime_us", sa.BigInteger),
    sa.Column("boot_id", sa.Text),
    sa.Index("list_record_by_time", "started_at"),
)

_LIVE = sa.text("state = 'live'")

job = sa.Table(
    "job",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("instance_id", sa.Text),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    # live, completed or failed; whether a live one runs or waits is the queue's to say.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("processed_at", Moment),
    sa.Column("completed_at", Moment),
    sa.Column("error", sa.Text, nullable=False),
    # Woken while it was running: its next snooze ends at once.
    sa.Column("woken", sa.Boolean, nullable=False),
    sa.Column("queue_id", sa.BigInteger),
    sa.Index("one_live_job", "key", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    sa.Index("job_by_queue_id", "queue_id"),
    # The state too, or SQLite would rather go through all jobs in that state.
    sa.Index("job_by_instance", "instance_id", "state"),
    sa.Index("job_by_state", "state", "id"),
)

# Conditions in the very words of a partial index: with anything else in their place, say a parameter, a
# database does not see that the index would do, and reads the whole table.
is_unsettled = sa.text("NOT instance.settled")
is_live = job.c.state == sa.literal_column("'live'")
