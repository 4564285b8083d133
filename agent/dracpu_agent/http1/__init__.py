"""A small HTTP/1.1 client, for the API server only."""
