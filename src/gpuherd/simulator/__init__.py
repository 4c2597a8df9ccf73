"""Novita in memory: stock, machines, boot times and bad days, for the demo, for our tests and for yours."""
