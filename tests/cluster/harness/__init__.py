"""What the cluster tests have in common: bringing a cluster up, talking to it, and telling why something failed."""
