"""Costs: what machines cost, as spans of time whose edges are known only so well."""
