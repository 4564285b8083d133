"""Shared code of the cluster tests: starts a cluster, operates and reads it, and collects its state after a failure."""
