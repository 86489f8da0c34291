"""The settings of verl's documentation that matter to an extension, as of August 2026."""

project = "verl"
copyright = "2026, the authors of this miniature"  # noqa: A001
master_doc = "index"
language = "en"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.autosectionlabel",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
templates_path = ["_templates"]
exclude_patterns = ["_build", "Thumbs.db", ".DS_Store", "README.md", "README_vllm0.7.md"]
html_theme = "sphinx_rtd_theme"
suppress_warnings = ["ref.duplicate", "ref.myst"]
