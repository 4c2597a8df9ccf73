"""Several replicas on one PostgreSQL, as real processes that are killed, stopped and cut off."""
