"""Formulas as MathML, which browsers draw themselves: no script, no download, works offline."""

import re

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Usual LaTeX that docutils knows under another name, or reads in another way: it would put the
# subscript of an accented letter below the letter, so the subscript goes to an empty group.
REWRITES = [
    (r"\\dots\b", r"\\ldots"),
    (r"\\iff\b", r"\\Leftrightarrow"),
    (r"\\([bB]igg?)(?![a-zA-Z])", r"\\\1l"),
    (r"{(align|split)\*?}", "{aligned}"),
    (r"(\\(?:hat|bar|tilde|dot|vec|widehat|widetilde)\b\s*(?:{[^{}]*}|\\[a-zA-Z]+|\w))", r"\1{}"),
]


def visit_math(translator, node):
    translator.body.append(_mathml(node, as_block=False))
    raise SkipNode


def visit_displaymath(translator, node):
    translator.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>\n')
    raise SkipNode


def _mathml(node, as_block):
    text = node.astext()
    for pattern, replacement in REWRITES:
        text = re.sub(pattern, replacement, text)
    if as_block and r"\\" in text and r"\begin{" not in text:  # lines of one formula
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    try:
        return tex2mathml(text, as_block=as_block)
    except MathError as error:
        logger.warning("formula %r: %s", text, error, location=node)
        return ""


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True}
