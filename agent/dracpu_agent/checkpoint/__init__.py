"""The checkpoint on disk."""
