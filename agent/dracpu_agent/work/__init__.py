"""The jobs of the agent, one module for each: claims, pinning, settings, recovery, audit and others."""
