"""The container runtime: an NRI plugin that tells it on which CPUs each container runs."""
