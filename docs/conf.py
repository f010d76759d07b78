from pathlib import Path

from hitrate import __version__

project = "hitrate"
author = "The hitrate developers"
project_copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

napoleon_google_docstring = False
autodoc_typehints = "none"  # the Parameters sections already give types and shapes
# The References section of a docstring may list a paper that its text does not cite by number.
suppress_warnings = ["ref.footnote"]

html_theme = "pydata_sphinx_theme"
html_title = f"hitrate {release}"
html_show_sourcelink = False
# A page at the top has no pages beside it to list; a wide table needs the room of the contents.
html_sidebars = {"*": [], "reproduction/*": [], "api": ["sidebar-nav-bs"]}
WIDE = ("losses/index", "recipes", "reproduction")
WIDE += tuple(
    f"reproduction/{page.stem}" for page in Path(__file__).parent.glob("reproduction/*.md")
)
html_theme_options = {
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in WIDE}}
}
html_static_path = ["_static"]
html_css_files = ["tables.css"]
