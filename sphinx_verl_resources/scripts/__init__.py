"""Read verl's settings from launch scripts, YAML and overrides, without running anything."""
