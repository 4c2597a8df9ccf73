"""Tables of rentals: instances, attempts, events, observations, orphans, claims, plans, capacity."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql import ledger_tables
from gpuherd.adapters.sql.sql_types import Moment

# Of what it will cost an hour, so much is in no span yet; less than a micro-dollar was lost in rounding.
UNBILLED = "gpus > 0 AND micro_usd > cost_rate_nusd_h / 1000 + 1"


metadata = ledger_tables.metadata


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


_OPEN = sa.text("state IN ('sent', 'unknown')")


# guard: one open attempt, in the database
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


# Conditions in the very words of a partial index: with anything else in their place, say a parameter, a
# database does not see that the index would do, and reads the whole table.
is_unsettled = sa.text("NOT instance.settled")


# Which plan was rented is in `claim`: its key lets nobody rent one twice.
held_plan = sa.Table(
    "held_plan",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # The id of the key that may rent it.
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hourly_usd", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Index("held_plan_by_end", "expires_at"),
)


# An offer that the cloud has refused for lack of stock: how often in a row, when last, and what it said.
offer_rest = sa.Table(
    "offer_rest",
    metadata,
    sa.Column("product_id", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("billing_mode", sa.Text, primary_key=True),
    sa.Column("refusals", sa.Integer, nullable=False),
    sa.Column("refused_at", Moment, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
)


# Where the cloud has lately taken a spot machine back: others go there last.
reclaimed_place = sa.Table(
    "reclaimed_place",
    metadata,
    sa.Column("product_id", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("billing_mode", sa.Text, primary_key=True),
    sa.Column("reclaimed_at", Moment, nullable=False),
)
