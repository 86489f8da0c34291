"""The pydantic models of the data files; the JSON Schemas under ``data/schema`` come from them."""
