"""One turn of the reconcile loop: look, decide, act, remember."""
