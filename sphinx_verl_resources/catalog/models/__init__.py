"""The pydantic models of the data files; the JSON Schemas under ``data/schema`` come from them.

They do without ``from __future__ import annotations``: pydantic would compile each annotation once more.
"""
