"""The Model Context Protocol: what an agent may ask, over the client and with the caller's own key."""
