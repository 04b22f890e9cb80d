"""Two directives: the method sections of a user guide page, and a Markdown file of the root."""

import re
from pathlib import Path

from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from . import methods, pages

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parent.parent.parent


class MethodSections(SphinxDirective):
    """``.. method-sections:: cluster`` includes the sections of a package: general ones first."""

    required_arguments = 1

    def run(self):
        self.env.note_reread()  # a new section file must show up without a clean build
        stems = methods.sections_of(self.arguments[0])
        text = "\n\n".join(f".. include:: _sections/{stem}.rst" for stem in stems)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class MarkdownFile(SphinxDirective):
    """``.. markdown-file:: CHANGELOG.md`` includes a Markdown file without its top title."""

    required_arguments = 1

    def run(self):
        path = ROOT / self.arguments[0]
        self.env.note_dependency(path)
        text = markdown_to_rst(path.read_text("utf-8"))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def markdown_to_rst(text):
    """Translate the plain Markdown of our own files: titles, code, links, lists, tables."""
    blocks = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(_code(block) if block.startswith("```") else _prose(block) for block in blocks)


def _code(block):
    first, *lines, _ = block.splitlines()
    body = "\n".join(f"   {line}" for line in lines)
    return f"\n.. code-block:: {first.strip('`') or 'text'}\n\n{body}\n\n"


def _prose(text):
    text = re.sub(r"^# .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?:^\|.*\n)+", _table, text, flags=re.MULTILINE)
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)
    text = re.sub(r"\[([^\]]+)\]\((\w+:[^)]+)\)", r"`\1 <\2>`__", text)
    text = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r"\1 (``\2``)", text)
    text = re.sub(r"^(#{2,}) (.*)$", _section_title, text, flags=re.MULTILINE)
    return text


def _table(match):
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in match[0].splitlines()
    ]
    return pages.list_table(header, rows)


def _section_title(match):
    level, title = match.groups()
    return f"\n{title}\n{'-~'[len(level) - 2] * len(title)}\n"


def warn_of_lost_sections(app, env):
    """Every section file must belong to a package, or no page would show it."""
    shown = {stem for package in methods.packages() for stem in methods.sections_of(package)}
    for stem in set(methods.guide_stems()) - shown:
        logger.warning("_sections/%s.rst: no estimator lives in a module _%s.py", stem, stem)


def setup(app):
    app.add_directive("method-sections", MethodSections)
    app.add_directive("markdown-file", MarkdownFile)
    app.connect("env-updated", warn_of_lost_sections)
    return {"parallel_read_safe": True}
