"""API reference: an index of the packages, a page a package, a page for every public object."""

import inspect
from importlib import import_module

import skicml
from skicml.utils import all_estimators

from . import pages

INTRODUCTION = """\
Everything public, by package. Estimators follow scikit-learn's conventions. Private modules,
whose names start with an underscore, may change without notice.
"""


def write_pages(folder):
    """Write all pages of the reference; remove those of objects that are gone."""
    packages = [name for name in skicml.__all__ if name != "__version__" and _public_names(name)]
    texts = {"index": _index(packages)}
    for package in packages:
        texts[f"skicml.{package}"] = _package_page(package)
        for name in _public_names(package):
            texts[f"skicml.{package}.{name}"] = _object_page(package, name)
    for page, text in texts.items():
        pages.write(folder / f"{page}.rst", text)
    for path in folder.glob("*.rst"):
        if path.stem not in texts:
            path.unlink()


def _public_names(package):
    """Names that a package exports: estimators first, then other classes, then functions."""

    def rank(name):
        obj = _object(package, name)
        return (not _is_estimator(obj), not inspect.isclass(obj), name)

    return sorted(import_module(f"skicml.{package}").__all__, key=rank)


def _object(package, name):
    return getattr(import_module(f"skicml.{package}"), name)


def _is_estimator(obj):
    return obj in [cls for _, cls in all_estimators()]


def _summary(package):
    return inspect.getdoc(import_module(f"skicml.{package}")).splitlines()[0]


def _index(packages):
    rows = []
    for package in packages:
        names = _public_names(package)
        names = [name for name in names if _is_estimator(_object(package, name))] or names
        links = ", ".join(f":obj:`~skicml.{package}.{name}`" for name in names)
        rows.append([f":mod:`skicml.{package}`", _summary(package), links])
    table = pages.list_table(["Package", "What it is for", "Estimators, or functions"], rows)
    toctree = [".. toctree::", "   :hidden:\n", *(f"   skicml.{package}" for package in packages)]
    return "\n".join([pages.title("API reference"), INTRODUCTION, table, *toctree, ""])


def _package_page(package):
    module, names = f"skicml.{package}", _public_names(package)
    return "\n".join(
        [
            pages.title(module),
            f".. module:: {module}\n",
            f"{_summary(package)}\n",
            ".. autosummary::",
            "   :nosignatures:\n",
            *(f"   {name}" for name in names),
            "",
            ".. toctree::",
            "   :hidden:\n",
            *(f"   {name} <{module}.{name}>" for name in names),
            "",
        ]
    )


def _object_page(package, name):
    obj = _object(package, name)
    full_name = f"skicml.{package}.{name}"
    if inspect.isclass(obj):
        directive = "autoclass"
        options = [
            "   :members:",
            "   :special-members: __call__",
            "   :inherited-members: Exception, Module",
        ]
    elif callable(obj):
        directive, options = "autofunction", []
    else:
        directive, options = "autodata", []
    return "\n".join(
        [
            pages.title(name),
            f".. {directive}:: {full_name}",
            *options,
            "",
            f".. minigallery:: {full_name}",
            "   :add-heading: Gallery",
            "   :heading-level: -",
            "",
        ]
    )
