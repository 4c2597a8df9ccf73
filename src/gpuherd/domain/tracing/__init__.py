"""Traces: which span belongs to which trace, and what a change of an instance says about its rental."""
