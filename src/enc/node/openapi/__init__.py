"""The OpenAPI description of the node's API."""
