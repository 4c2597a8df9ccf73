"""The whole store in plain dicts: the same promises as the SQL one, and the same contract suite."""
