"""Machines to order: from a short description to what the kernel would show."""
