"""What images need: templates, and logins to registries."""
