"""What a person sees of a running agent: logs, metrics, health checks, the state dump."""
