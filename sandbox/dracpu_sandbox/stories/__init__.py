"""Stories: each is a short file that changes a cluster step by step, and checks the effects."""
