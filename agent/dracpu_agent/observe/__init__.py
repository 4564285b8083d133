"""Logs, metrics, health checks, and the state document of a running agent."""
