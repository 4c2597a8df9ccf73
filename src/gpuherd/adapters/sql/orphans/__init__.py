"""The ledger of orphans, in SQL."""
