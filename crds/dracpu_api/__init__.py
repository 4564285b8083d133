"""The code that operator and agent share: names, records, errors, conditions, and the basics of a Kubernetes client."""
