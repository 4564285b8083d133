"""The agent's access to the API server: its slices, its CpuNode, claims and Events, over a thin HTTP client."""
