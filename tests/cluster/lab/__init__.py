"""A real Kubernetes cluster on one machine, for tests.

The control plane runs on this host; the nodes are machines emulated by QEMU (no KVM needed) with a real kernel, cgroup
v2, several sockets, NUMA nodes and SMT, and run the real kubelet, containerd and runc. `python -m lab --help` tells
what it can do. All of it lives in the user's cache directory and in one network namespace of its own.
"""
