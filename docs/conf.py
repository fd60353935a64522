"""How `make docs` builds the site.

Its source is the whole repository, so that relative links are the ones GitHub follows.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext")]

import dpaudit  # noqa: E402

project = "dpaudit"
author = "The dpaudit authors"
version = release = dpaudit.__version__
html_title = f"dpaudit {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "commands",
    "docstrings",
    "inline_svg",
    "mathml",
    "notebooks",
    "offline_search",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".ipynb": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/api/*.rst",
    "docs/notebooks/*.ipynb",
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "*/README.md",
    "*/**/PROOF.md",
    "examples/*/README.md",
]
PAGES = {"docs", "attacks", "mitigations", "examples"}  # no other folder is even looked into
exclude_patterns = [
    *(p.name for p in ROOT.iterdir() if p.is_dir() and p.name not in PAGES),
    "docs/_build",
]

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_dmath_allow_space = False
myst_dmath_allow_digits = False
myst_heading_anchors = 4
smartquotes_action = "qe"  # quotes and ellipses; `--` is no dash where options are named
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
