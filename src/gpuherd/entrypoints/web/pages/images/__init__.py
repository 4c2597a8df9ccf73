"""What images need: templates, logins to registries, and a pull ahead of time."""
