"""How CPUs are offered: one file for each mode, with `publish` (what to offer) and `resolve` (device -> CPUs)."""
