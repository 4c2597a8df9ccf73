"""What is done with budgets: decide them, tell of them, and end what they do not hold."""
