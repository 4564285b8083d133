"""Stories: something happens in a cluster and is checked step by step; each is a short file."""
