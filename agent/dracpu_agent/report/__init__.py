"""How the node stands: conditions, node status, device health, and the document that `dracpu-agent state` prints."""
