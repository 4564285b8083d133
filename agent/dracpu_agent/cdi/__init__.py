"""CDI: what the runtime adds to a container that uses a claim."""
