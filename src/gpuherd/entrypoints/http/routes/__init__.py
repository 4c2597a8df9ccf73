"""One module for each resource: parse, call one use case, render."""
