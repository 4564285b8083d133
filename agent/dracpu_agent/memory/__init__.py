"""Memory and hugepages: what there is on each NUMA node, what is promised of it, and the limits that follow."""
