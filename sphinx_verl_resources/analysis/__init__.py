"""What is computed: pure functions from recorded facts to bytes. No files, no Sphinx."""
