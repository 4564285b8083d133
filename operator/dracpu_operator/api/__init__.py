"""The connection to the API server, and what the operator writes there."""
