"""A small HTTP server for probes and metrics that no client can occupy."""
