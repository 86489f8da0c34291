"""Commands that answer questions and write run files; see ``commands``."""
