"""One pass of the reconcile loop: look, decide, act, remember."""
