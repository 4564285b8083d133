"""The live view: each node drawn socket by socket, core by core, each CPU marked by its use."""
