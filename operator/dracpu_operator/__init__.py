"""The operator: turns CpuDriverConfigs into one CpuNode for each node, and tells how that goes."""
