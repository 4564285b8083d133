"""The node's ResourceSlices: plans the writes, paces them, and checks what the API server stored."""
