"""Simulated machines: short descriptions, and the files that the kernel would show for them."""
