"""The drivers of a node: which devices each offers, and what it grants to a claim. node.py puts them together."""
