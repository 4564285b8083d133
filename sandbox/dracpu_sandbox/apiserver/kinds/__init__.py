"""What is served and how objects look: discovery, OpenAPI, tables, schemas, validation."""
