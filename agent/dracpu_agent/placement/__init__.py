"""Placement: which CPUs each container may run on, and what must change when something moves."""
