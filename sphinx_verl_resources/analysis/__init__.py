"""The memory analysis, a rule of thumb: pure functions from recorded facts to bytes. No files, no Sphinx."""
