import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

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
exclude_patterns = ["_build", "_static", "_templates"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Formulas without a network; README.txt beside it says what it is.
mathjax_path = "mathjax/tex-svg.js"
# The menu would load what is not there.
mathjax3_config = {"options": {"enableMenu": False}}

default_role = "py:obj"  # `names` in docstrings are links where there is a page
napoleon_google_docstring = False
autodoc_typehints = "none"  # the Parameters sections already give types and shapes
autodoc_member_order = "bysource"
# The References section of a docstring may list a paper that its text does not cite by number.
suppress_warnings = ["ref.footnote"]

# The reference is the same whether the hosts are installed or not: it sees their names alone.
# (Autodoc's own mocks would hide the arguments of what is derived from them.)
HOSTS = {
    "accelerate": {"Accelerator": object},
    "fastai.callback.core": {"Callback": object},
    "fastai.losses": {"BaseLoss": object},
    "keras": {
        "backend": SimpleNamespace(backend=lambda: "torch"),
        "callbacks": SimpleNamespace(Callback=object),
        "losses": SimpleNamespace(Loss=object),
    },
    "lightning.pytorch": {"Callback": object},
    "skorch.callbacks": {"Callback": object},
    "timm": {},
    "torchmetrics": {"Metric": object},
    "transformers": {"TrainerCallback": object},
    "transformers.models.auto.modeling_auto": {"MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": {}},
    "trl": {},
}
for path, names in HOSTS.items():
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        host = ".".join(parts[:end])
        sys.modules.setdefault(host, ModuleType(host))
    vars(sys.modules[path]).update(names)

html_theme = "pydata_sphinx_theme"
html_title = f"hitrate {release}"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_sidebars = {"**": ["pages"]}
# A wide table needs the room of the contents.
WIDE = ("gpu", "losses/index", "recipes", "reproduction")
WIDE += tuple(
    f"reproduction/{page.stem}" for page in Path(__file__).parent.glob("reproduction/*.md")
)
html_theme_options = {
    "navbar_center": [],
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in WIDE}},
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_static_path = ["_static"]
html_css_files = ["pages.css"]


def of_hitrate(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element
) -> nodes.Element | None:
    """A `name` without a module in front is importable from hitrate, wherever it is written."""
    if node.get("refdomain") != "py" or "." in node["reftarget"]:
        return None
    full = f"hitrate.{node['reftarget']}"
    page = node["refdoc"]
    domain = env.domains.python_domain
    return domain.resolve_xref(env, page, app.builder, "obj", full, node, contnode)


def is_for_the_host(
    app: Sphinx, kind: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """What a host calls at its own time is of no use to a reader."""
    calls = name.startswith(("on_", "before_", "after_")) or name in ("setup", "teardown")
    return calls or None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", is_for_the_host)
    app.connect("missing-reference", of_hitrate)
