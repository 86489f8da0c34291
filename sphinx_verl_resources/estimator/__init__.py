"""What a training run needs of each GPU, from verl's own settings. Pure functions; no files, no Sphinx."""
