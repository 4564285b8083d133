"""A real Kubernetes cluster on one machine, for tests.

The control plane runs on this host; the nodes are machines emulated by QEMU (no KVM needed) with a real kernel, cgroup
v2, several sockets, NUMA nodes and SMT, and run the real kubelet, containerd and runc. `python -m lab --help` lists
the commands. The lab keeps its files in the user's cache directory and runs in a network namespace of its own.
"""
