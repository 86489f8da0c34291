"""The recorded data: models, files with positions, cross-checks. Knows neither Sphinx nor docutils.

The submodules are imported one by one on purpose: ``files`` is needed in every build, the pydantic
models only when data have really changed or a page asks for them.
"""
