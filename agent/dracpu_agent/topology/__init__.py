"""The machine: which CPUs there are and what they share."""
