"""The pydantic models of the data files; the JSON Schemas under ``data/schema`` come from them.

They do not import ``annotations`` from ``__future__``: pydantic would then compile each annotation twice.
"""
