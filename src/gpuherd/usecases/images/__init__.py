"""What the account keeps for images: registry credentials, templates."""
