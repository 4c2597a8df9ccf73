"""Several processes on one database: leadership, registry, shared breaker."""
