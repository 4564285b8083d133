"""Chooses the CPUs that a request gets. Start reading at choose.py."""
