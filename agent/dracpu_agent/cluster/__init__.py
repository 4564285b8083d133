"""The API server as the agent needs it: own slices, own CpuNode, claims and Events, over a thin HTTP client."""
