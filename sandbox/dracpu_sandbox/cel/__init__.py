"""The Common Expression Language with the functions that Kubernetes adds."""
