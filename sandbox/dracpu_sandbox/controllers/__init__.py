"""Loops that act on what the API server has: the scheduler, and what a controller manager does for claims and pods."""
