"""What operator and agent share, and what is common to all Kubernetes clients: names, records, errors, conditions."""
