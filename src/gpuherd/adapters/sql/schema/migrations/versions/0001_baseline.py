"""The tables as they are described, triggers that keep the audit log as it is, and Procrastinate's tables.

Nothing was released yet, so this is the only migration, and it follows the tables. The first release
freezes it: from then on each change is a migration of its own.
"""

from __future__ import annotations

from alembic import op
from procrastinate.schema import SchemaManager

from gpuherd.adapters.sql.rental_tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_APPEND_ONLY = "'the audit log is only ever appended to'"
_MOVES_ON = "'the anchor of the audit log only ever moves on'"
_BEFORE_ANCHOR = "COALESCE((SELECT max(n) FROM audit_anchor), 0)"

# An entry may be deleted only up to the anchor, which marks what was pruned. Code that changes the log on
# purpose breaks the chain of hashes.
SQLITE = (
    f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, {_APPEND_ONLY}); END",
    f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN OLD.n > {_BEFORE_ANCHOR} "
    f"BEGIN SELECT RAISE(ABORT, {_APPEND_ONLY}); END",
    "CREATE TRIGGER audit_anchor_no_return BEFORE UPDATE ON audit_anchor WHEN NEW.n <= OLD.n "
    f"BEGIN SELECT RAISE(ABORT, {_MOVES_ON}); END",
    "CREATE TRIGGER audit_anchor_no_delete BEFORE DELETE ON audit_anchor "
    f"BEGIN SELECT RAISE(ABORT, {_MOVES_ON}); END",
)
POSTGRES = (
    "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION {_APPEND_ONLY}; END $$",
    "CREATE TRIGGER audit_no_change BEFORE UPDATE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
    "CREATE FUNCTION audit_is_kept_after_its_anchor() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN IF OLD.n > {_BEFORE_ANCHOR} THEN RAISE EXCEPTION {_APPEND_ONLY}; END IF; RETURN OLD; END $$",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    "FOR EACH ROW EXECUTE FUNCTION audit_is_kept_after_its_anchor()",
    "CREATE FUNCTION audit_anchor_moves_on() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN IF TG_OP = 'UPDATE' THEN IF NEW.n > OLD.n THEN RETURN NEW; END IF; END IF; "
    f"RAISE EXCEPTION {_MOVES_ON}; END $$",
    "CREATE TRIGGER audit_anchor_no_return BEFORE UPDATE OR DELETE ON audit_anchor "
    "FOR EACH ROW EXECUTE FUNCTION audit_anchor_moves_on()",
)


def upgrade() -> None:
    connection = op.get_bind()
    is_sqlite = connection.dialect.name == "sqlite"
    # Without a look at what is there: a table of somebody else with one of our names must fail.
    metadata.create_all(connection, checkfirst=False)
    if not is_sqlite:
        # With the driver itself, which takes several statements at once.
        connection.connection.cursor().execute(SchemaManager.get_schema())
    for statement in SQLITE if is_sqlite else POSTGRES:
        op.execute(statement)
