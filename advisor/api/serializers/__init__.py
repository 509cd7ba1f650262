"""What the API answers, as pydantic types: one source for the JSON and for its OpenAPI schema."""
