"""The ledger of costs, in SQL."""
