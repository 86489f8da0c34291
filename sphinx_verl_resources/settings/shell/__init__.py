"""A reader of shell scripts that follows their commands without running them."""
