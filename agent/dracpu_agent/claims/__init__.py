"""Claims: what is asked, who holds which CPUs, and how that survives a restart."""
