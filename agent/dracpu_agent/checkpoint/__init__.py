"""Writes the checkpoint to disk and reads it."""
