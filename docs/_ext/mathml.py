"""Render formulas as MathML, which browsers show by themselves: no script, no font and no network is needed."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

# LaTeX commands that docutils does not know, and the nearest that it does.
KNOWN = [
    (re.compile(r"\\dots(?![a-zA-Z])"), r"\\ldots"),
    (re.compile(r"\\(begin|end)\{(?:align|equation|gather)\*?\}"), r"\\\1{aligned}"),
    (re.compile(r"\\(t?frac)(\d)(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\(big|Big|bigg|Bigg)(?=\s*(?:[)\]]|\\\}))"), r"\\\1r"),
    (re.compile(r"\\(big|Big|bigg|Bigg)(?![a-zA-Z])"), r"\\\1l"),
    # An exponent belongs to the whole norm. If it stands on the second bar alone, browsers draw that bar smaller.
    (re.compile(r"\\lVert\b(.*?)\\rVert\b", flags=re.DOTALL), r"{\\|\1\\|}"),
]


# Browsers set no space between the name of a function and its argument, `log N`, unless that is in parentheses.
FUNCTION = re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<m(?!o\b))")


def to_mathml(node: nodes.Element, code: str, as_block: bool) -> str:
    """Return LaTeX as MathML; what cannot be translated is shown as it stands, with a warning."""
    for pattern, known in KNOWN:
        code = pattern.sub(known, code)
    try:
        return FUNCTION.sub('<mspace width="0.17em" />', tex2mathml(code, as_block=as_block))
    except MathError as error:
        logger.warning("formula not rendered: %s in %r", error, code, location=node)
        return f"<code>{escape(code)}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(to_mathml(node, node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(to_mathml(node, node.astext(), as_block=True))
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
