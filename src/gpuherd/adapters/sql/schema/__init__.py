"""The tables, their migrations, and the check of a database file."""
