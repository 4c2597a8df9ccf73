"""How long a product takes until it is ready is learned by what was rented, however it was wished for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_WAS_READY = sa.text("ready_at IS NOT NULL")
_FROM_DOC = {
    "sqlite": "UPDATE instance SET rented_product = json_extract(doc, '$.rental.product_name')",
    "postgresql": "UPDATE instance SET rented_product = doc::json #>> '{rental,product_name}'",
}


def upgrade() -> None:
    op.add_column("instance", sa.Column("rented_product", sa.Text()))
    op.execute(_FROM_DOC[op.get_bind().dialect.name])
    # Replicas of the version before find their rows without it, only later.
    op.drop_index("instance_ready_times", "instance")
    op.create_index(
        "instance_ready_times",
        "instance",
        ["rented_product", "ready_at"],
        unique=False,
        sqlite_where=_WAS_READY,
        postgresql_where=_WAS_READY,
    )
