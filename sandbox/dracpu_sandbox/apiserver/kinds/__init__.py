"""The kinds of objects that are served: schemas, validation, discovery, OpenAPI, tables."""
