"""The lifecycle: from the goal and what the cloud shows to the one step to take now."""
