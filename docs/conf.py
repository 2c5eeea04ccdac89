"""The documentation site, which `./dev docs` builds with Sphinx into out/docs.

Its sources are the Markdown files of the repository, where they lie, so that links between them hold in both places.
What the reference of Python says comes from docstrings, and that of C++ from the headers' comments, by Doxygen.
"""

import re
import subprocess
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "onnx_torch"
release = re.search(r"project\(onnx_torch VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
version = release
copyright = "the authors of onnx_torch"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "breathe"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "src/**/README.md", "tools/**/README.md"]
exclude_patterns = ["build", "out", ".*", "gpu_pack", "third_party", "tests", "benchmarks"]

# Pages: Markdown, in which a heading is a link's target by its text, as on the sites that show repositories.
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # code with … for what is left out

# Python: a name between single backticks is a link where it is one of ours.
default_role = "py:obj"
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True

# C++: comments are plain ones in the headers, which comments.sed makes Doxygen's.
DOXYGEN = ROOT / "out" / "doxygen"
SETTINGS = f"""
INPUT = "{ROOT / "include"}"
RECURSIVE = YES
INPUT_FILTER = "sed -E -f '{ROOT / "docs" / "comments.sed"}'"
OUTPUT_DIRECTORY = "{DOXYGEN}"
GENERATE_XML = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
EXTRACT_ALL = YES
TYPEDEF_HIDES_STRUCT = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = ONNX_TORCH_API=
QUIET = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
"""
DOXYGEN.mkdir(parents=True, exist_ok=True)
subprocess.run(["doxygen", "-"], input=SETTINGS, text=True, check=True)

breathe_projects = {"headers": str(DOXYGEN / "xml")}
breathe_default_project = "headers"
breathe_default_members = ("members", "undoc-members")
breathe_show_include = False

# A reference that leads nowhere is an error, but for names of other projects.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!onnx_torch\.).*|.*\._.*"),  # what is private has no entry of its own
    (r"cpp:.*", r"(?!onnxtorch::).*"),
]

html_theme = "furo"
html_title = f"onnx_torch {release}"
html_copy_source = False
html_show_copyright = False
templates_path = ["_templates"]
html_additional_pages = {"index": "index.html"}  # leads to the start page


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", unlink_folders)


def unlink_folders(app: Sphinx, page: nodes.document) -> None:
    """Leaves the text of links to folders of the repository, which the site has no pages of."""
    for link in list(page.findall(pending_xref)):
        if (Path(page["source"]).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)
