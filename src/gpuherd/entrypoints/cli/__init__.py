"""The command line: parse, ask the HTTP API, show the answer. It knows nothing that the API does not say."""
