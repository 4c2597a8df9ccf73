"""Who is asking: authorization and browser sessions, for the API and the dashboard alike."""
