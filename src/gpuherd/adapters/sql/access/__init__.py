"""API keys, audit log, idempotency keys and revoked sessions, in SQL."""
