"""Configuration of the documentation site."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from _ext import evidence, reference

import skicml

# Pages made from the package and from the results of the benchmarks. They are written before
# Sphinx looks for sources, into folders that git ignores.
reference.write_pages(DOCS / "reference")
evidence.write_page(DOCS / "evidence", results=DOCS.parent / "benchmarks" / "results")

project = "skicml"
author = "The skicml developers"
copyright = author
version = release = skicml.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.extlinks",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "_ext.docstring_types",
    "_ext.guide",
    "_ext.mathml",
    "_ext.sklearn_links",
]
default_role = "literal"
extlinks = {
    "arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s"),
    "doi": ("https://doi.org/%s", "doi:%s"),
}
exclude_patterns = ["_build", "user_guide/_sections"]

# Links into skicml and scikit-learn must lead somewhere; other names in docstrings
# ("ndarray of shape ...") need not.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!skicml\.|sklearn\.).*")]

# API reference: one generated page an object, so neither autosummary nor numpydoc makes stubs.
autosummary_generate = False
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_class_members_toctree = False
# Networks show what they add to torch's modules.
numpydoc_show_inherited_class_members = {
    f"skicml.generative.{name}": False
    for name in ("MLPDenoiser", "TransformerDenoiser", "UNet1dDenoiser", "UNet2dDenoiser")
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "parallel": 2,
    "doc_module": ("skicml",),
    "default_thumb_file": str(DOCS / "_static" / "logo.svg"),
    "backreferences_dir": "reference/backreferences",
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "skicml"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_sidebars = {
    page: []
    for page in ("index", "install", "choosing", "evidence/index", "contributing", "changelog")
}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "skicml", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "show_nav_level": 1,
}
