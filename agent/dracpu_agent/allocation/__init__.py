"""Allocation: which CPUs a request gets. Start reading at choose.py."""
