"""A machine that stands still, or shall begin anew, is brought up: starts and restarts."""
