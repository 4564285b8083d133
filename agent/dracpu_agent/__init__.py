"""The node agent: it publishes a node's CPUs, prepares claims for them and pins the containers that hold them."""
