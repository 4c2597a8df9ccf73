"""Plans that are held, so that they can be rented as they were."""
