"""What people do with instances: launch, plan, read, list, change the goal."""
