"""How CPUs are offered: one file for each mode, each with `publish` (devices to offer) and `resolve` (device -> CPUs)."""
