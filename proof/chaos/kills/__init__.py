"""Real processes, real files, real kill -9: at random moments and at named points of the work."""
