"""Read verl's settings from overrides, YAML and launch scripts, without running anything, and write them."""
