"""Fitted attributes in types, shapes and costs of docstrings, as in ``shape (t_,)`` and ``O(t_)``.

reStructuredText reads a name that ends with an underscore as a link. In these places it never is
one, so that authors need not mark it.
"""

import re

TYPE = re.compile(r"^\s*\*{0,2}\w[\w, *]* : .+$")  # "name : type", also after numpydoc's work
SHAPE_OR_COST = re.compile(r"(?:\bshape |\bO)\([^()]*\)")
ATTRIBUTE = re.compile(r"(?<![\w`.*])([a-zA-Z]\w*)_(?![\w`*]| :)")


def mark_attributes(app, what, name, obj, options, lines):
    for index, line in enumerate(lines):
        pattern = TYPE if TYPE.match(line) else SHAPE_OR_COST
        lines[index] = pattern.sub(lambda match: ATTRIBUTE.sub(r"\1\\_", match[0]), line)


def setup(app):
    # After numpydoc (priority 500), which brings in the docstrings of properties.
    app.connect("autodoc-process-docstring", mark_attributes, priority=600)
    return {"parallel_read_safe": True}
