"""Measures the operator with a fleet of simulated nodes on a real kube-apiserver and etcd: `make bench-operator`."""
