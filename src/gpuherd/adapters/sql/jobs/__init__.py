"""The records of jobs, in SQL."""
