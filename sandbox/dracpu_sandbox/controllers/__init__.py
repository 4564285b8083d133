"""Loops that act on objects of the API server: the scheduler, and the controllers for claims and pods."""
