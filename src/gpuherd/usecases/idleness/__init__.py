"""Idleness: who watches the use of instances, and what keeps wrong metrics from ending many at once."""
