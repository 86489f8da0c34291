"""Settings of verl, read from overrides, YAML and launch scripts without running anything, and written."""
