import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sphinx_verl_resources import __version__

project = "sphinx-verl-resources"
version = release = __version__
author = "The sphinx-verl-resources authors"
copyright = "2026, The sphinx-verl-resources authors"

extensions = [
    "myst_parser",
    "reference_lists",
    "estimator_lists",
    "sphinx_verl_resources",
]
exclude_patterns = ["_build"]
html_theme = "sphinx_rtd_theme"
html_title = project
# Colours of code that have enough contrast, for the themes that bring none of their own.
if find_spec("a11y_pygments"):
    pygments_style = "a11y-high-contrast-light"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
# Sphinx keeps its doctrees in the output folder by default, where its EPUB builder wonders about them.
suppress_warnings = ["epub.unknown_project_files"]
myst_enable_extensions = ["colon_fence"]

verl_resources_data = ["../data"]
