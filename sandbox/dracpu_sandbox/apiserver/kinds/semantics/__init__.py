"""Rules and defaults of built-in kinds that their schemas do not express."""
