"""An NRI plugin: tells the container runtime on which CPUs each container runs."""
