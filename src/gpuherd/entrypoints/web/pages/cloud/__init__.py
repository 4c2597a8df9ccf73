"""The provider: its offers, its machines, and whether creates may go out."""
