"""The doctor: checks gather facts, and pure functions turn them into findings."""
