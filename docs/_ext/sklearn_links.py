"""Link names of scikit-learn to its site by the pattern of its addresses.

Intersphinx would do the same, but needs the network at every build.
"""

import inspect
from pydoc import locate

from docutils import nodes
from sklearn.experimental import (  # noqa: F401  (makes these estimators known)
    enable_halving_search_cv,
    enable_iterative_imputer,
)

SITE = "https://scikit-learn.org/stable"
# Labels that the docstrings of inherited methods refer to.
LABELS = {
    "accuracy_score": "modules/model_evaluation.html#accuracy-score",
    "df_output_transform": "modules/df_output_transform.html",
    "metadata_routing": "metadata_routing.html",
    "r2_score": "modules/model_evaluation.html#r2-score",
}


def object_page(name):
    """Address of a module or object of scikit-learn; None where there is no such name."""
    if not name.startswith("sklearn.") or (found := locate(name)) is None:
        return None
    if inspect.ismodule(found):
        return f"{SITE}/api/{name}.html"
    owner = name.rpartition(".")[0]
    if owner.rpartition(".")[2][:1].isupper():  # a method is described on the page of its class
        return f"{SITE}/modules/generated/{owner}.html#{name}"
    return f"{SITE}/modules/generated/{name}.html"


def label_page(label):
    """Address of a label that docstrings of scikit-learn use."""
    if label.startswith("sphx_glr_auto_examples_") and label.endswith(".py"):
        folder, _, example = label.removeprefix("sphx_glr_auto_examples_").partition("_plot_")
        return f"{SITE}/auto_examples/{folder}/plot_{example.removesuffix('.py')}.html"
    return f"{SITE}/{LABELS[label]}" if label in LABELS else None


def resolve(app, env, node, contnode):
    """Answer Sphinx's question where an unknown reference leads."""
    domain, kind, target = node.get("refdomain"), node.get("reftype"), node["reftarget"]
    if domain == "py":
        address = object_page(target)
    elif kind == "ref":
        address = label_page(target.lower())
    elif kind == "term":
        address = f"{SITE}/glossary.html#term-{target.replace(' ', '-')}"
    else:
        address = None
    if address is None:
        return None
    return nodes.reference("", "", contnode, internal=False, refuri=address)


def setup(app):
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True}
