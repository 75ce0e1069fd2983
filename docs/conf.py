"""How the documentation is built: `make docs`. Nothing is fetched from a network, neither here nor by the pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout's likewise, whichever is installed

from likewise import __version__

project = "likewise"
author = "likewise contributors"
copyright = author  # noqa: A001  # Sphinx's name for it
version = release = __version__

extensions = [
    "docs._ext.docstrings",
    "docs._ext.mathml",
    "docs._ext.outside",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = False  # types of torch and numpy have no page here
suppress_warnings = ["misc.highlighting_failure"]  # of console output, which is no language

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
html_math_renderer = "mathml"

autodoc_inherit_docstrings = False  # those of nn.Module
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = "likewise"
html_static_path = ["_static"]
html_css_files = ["likewise.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
templates_path: list[str] = []
