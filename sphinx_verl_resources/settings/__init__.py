"""Settings of verl read from text: overrides, YAML and launch scripts, without running anything."""
