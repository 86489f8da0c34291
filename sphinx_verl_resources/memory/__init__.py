"""The memory of a training run on each GPU, from verl's own settings. Pure functions; no files, no Sphinx."""
