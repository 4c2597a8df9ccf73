"""Where the audit log begins since its oldest entries were pruned; only what lies before may be deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_SQLITE = (
    "DROP TRIGGER audit_no_delete",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    "WHEN OLD.n > COALESCE((SELECT max(n) FROM audit_anchor), 0) "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is only ever appended to'); END",
    "CREATE TRIGGER audit_anchor_no_return BEFORE UPDATE ON audit_anchor WHEN NEW.n <= OLD.n "
    "BEGIN SELECT RAISE(ABORT, 'the anchor of the audit log only ever moves on'); END",
    "CREATE TRIGGER audit_anchor_no_delete BEFORE DELETE ON audit_anchor "
    "BEGIN SELECT RAISE(ABORT, 'the anchor of the audit log only ever moves on'); END",
)
_POSTGRES = (
    "DROP TRIGGER audit_no_change ON audit",
    "CREATE TRIGGER audit_no_change BEFORE UPDATE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
    "CREATE FUNCTION audit_is_kept_after_its_anchor() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN IF OLD.n > COALESCE((SELECT max(n) FROM audit_anchor), 0) THEN "
    "RAISE EXCEPTION 'the audit log is only ever appended to'; END IF; RETURN OLD; END $$",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    "FOR EACH ROW EXECUTE FUNCTION audit_is_kept_after_its_anchor()",
    "CREATE FUNCTION audit_anchor_moves_on() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN IF TG_OP = 'UPDATE' THEN IF NEW.n > OLD.n THEN RETURN NEW; END IF; END IF; "
    "RAISE EXCEPTION 'the anchor of the audit log only ever moves on'; END $$",
    "CREATE TRIGGER audit_anchor_no_return BEFORE UPDATE OR DELETE ON audit_anchor "
    "FOR EACH ROW EXECUTE FUNCTION audit_anchor_moves_on()",
)


def upgrade() -> None:
    op.create_table(
        "audit_anchor",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRES:
        op.execute(statement)
