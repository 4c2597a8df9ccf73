"""How SQL is run: connections, transactions, group commit, batched inserts."""
