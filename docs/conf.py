import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sphinx-verl-resources"
author = "The sphinx-verl-resources authors"
copyright = "2026, The sphinx-verl-resources authors"

extensions = ["myst_parser", "reference_lists", "sphinx_verl_resources"]
exclude_patterns = ["_build"]
html_theme = "sphinx_rtd_theme"
html_title = project
myst_enable_extensions = ["colon_fence"]

verl_resources_data = ["../data"]
