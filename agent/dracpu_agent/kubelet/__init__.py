"""The kubelet's side of the node: plugin registration, claims over gRPC, device health."""
