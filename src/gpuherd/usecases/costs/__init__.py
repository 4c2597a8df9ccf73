"""Costs: what was spent, what still costs, what is left, and whether the provider says the same."""
