"""A simulated node: kubelet and runtime around the real agent."""
