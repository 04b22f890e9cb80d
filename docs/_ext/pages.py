"""Write generated reStructuredText."""

import re


def escape(text):
    """Plain text for reStructuredText: no character of it is read as markup."""
    return re.sub(r"([\\*`_|<])", r"\\\1", str(text))


def title(text, underline="="):
    return f"{text}\n{underline * len(text)}\n"


def list_table(header, rows, widths="auto", css_class=""):
    """A ``list-table`` directive; cells are reStructuredText of one line."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}"]
    if css_class:
        lines.append(f"   :class: {css_class}")
    lines.append("")
    for row in [header, *rows]:
        for index, cell in enumerate(row):
            lines.append(f"   {'* -' if index == 0 else '  -'} {cell}".rstrip())
    return "\n".join(lines) + "\n"


def write(path, text):
    """Write a page, unless it is already so: Sphinx reads anew only what changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
