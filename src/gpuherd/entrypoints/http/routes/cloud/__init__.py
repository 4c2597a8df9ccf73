"""The provider: what it offers, what it shows, and whether creates may go out."""
