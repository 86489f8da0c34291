"""Rules for recorded data beyond what a build requires."""
