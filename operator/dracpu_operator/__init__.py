"""The operator: turns CpuDriverConfigs into a CpuNode for each node, and reports how far the nodes are."""
