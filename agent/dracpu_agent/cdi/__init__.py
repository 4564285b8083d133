"""CDI (Container Device Interface): the environment variables that the runtime adds to containers with a claim."""
