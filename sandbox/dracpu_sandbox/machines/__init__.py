"""Machines: from a short description to the files that the kernel would show."""
