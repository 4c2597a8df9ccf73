"""The simulated month: a thousand rentals in thirty virtual days, what they cost, and what they need not."""
