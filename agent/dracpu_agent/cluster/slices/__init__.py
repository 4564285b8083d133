"""The node's ResourceSlices: what to write, when, and whether the API server stored it."""
