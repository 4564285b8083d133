"""The live view: draws each node by sockets and cores, and marks each CPU by its use."""
