"""From results to something visible: docutils nodes and plain text. Computes nothing."""
