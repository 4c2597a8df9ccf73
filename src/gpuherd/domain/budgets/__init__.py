"""Budgets: how much may be spent in a period, and what happens when that is used up."""
