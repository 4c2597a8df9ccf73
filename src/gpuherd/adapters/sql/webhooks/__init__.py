"""Outbox, delivery log and endpoints, in SQL."""
