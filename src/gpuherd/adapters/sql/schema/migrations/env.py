"""Alembic's entry: runs the migrations on the connection that `migrate.py` hands over."""

from __future__ import annotations

from alembic import context

from gpuherd.adapters.sql.schema import budget_tables, secret_tables, tables

# Each of these modules adds its tables to the one metadata.
MODULES = (tables, budget_tables, secret_tables)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    # SQLite cannot alter much in place; Alembic copies the table instead.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
