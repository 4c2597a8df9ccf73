"""Budgets, in SQL."""
