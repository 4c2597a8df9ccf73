"""Commands about what the account keeps for images: registry, templates."""
