"""The Sphinx extension: domain, directives, transforms, and support for each builder."""
