"""The gRPC services that the kubelet calls: plugin registration, claims, device health."""
