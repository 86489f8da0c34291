"""Render results as docutils nodes and plain text; nothing is computed here."""
