"""Sphinx: the extension, its domain, directives, transforms and what each builder needs."""
