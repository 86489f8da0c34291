"""The recorded data: models, files with positions, cross-checks. Independent of Sphinx and docutils.

Import its submodules one by one: every build needs ``files``, but only changed data or a page that uses
them needs the pydantic models.
"""
