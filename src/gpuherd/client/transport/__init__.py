"""How the client's requests travel: blocking with the standard library, or asynchronously with aiohttp."""
