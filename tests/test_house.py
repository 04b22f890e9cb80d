"""Rules of the house that hold for every file: size, imports, repetition, docstrings, pages."""

import ast
import inspect
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest
from numpydoc.validate import validate

import skicml
from skicml.utils import all_estimators

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for folder in ("skicml", "tests", "benchmarks", "examples", "docs/_ext")
    for path in (ROOT / folder).rglob("*.py")
)
MAX_LINES = 700
# A function with fewer statements than this may look like another one by chance.
MIN_REPEATED_STATEMENTS = 5
# What a task package imports from, beside itself; and the exceptions.
BELOW_TASKS = {"_torch", "_views", "metrics", "privacy", "utils"}
NOT_TASKS = BELOW_TASKS | {"datasets"}
BUILDS_ON = {"time_series": {"generative"}}  # its imputer is a diffusion model
TORCH_PACKAGES = {"torch", "skorch", "torchdiffeq"}
DOCSTRING_RULES = {"PR01", "PR02", "PR03", "PR04", "PR07", "GL08", "SS01", "SS03", "RT03"}

PUBLIC_NAMES = [
    (package, name)
    for package in skicml.__all__
    if package != "__version__"
    for name in import_module(f"skicml.{package}").__all__
]


def _tree(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _relative(path):
    return path.relative_to(ROOT).as_posix()


# --- files -------------------------------------------------------------------------------


def test_no_file_is_too_long():
    lengths = {_relative(path): path.read_bytes().count(b"\n") for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def _imported_at_load(statements):
    """Names of the modules that importing these statements' file imports too."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            yield statement.module
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            blocks = (getattr(statement, name, []) for name in ("body", "orelse", "finalbody"))
            for block in (*blocks, *(h.body for h in getattr(statement, "handlers", []))):
                yield from _imported_at_load(block)


def _brings_torch(module):
    parts = module.split(".")
    return parts[0] in TORCH_PACKAGES or any(part.endswith("_torch") for part in parts)


def test_torch_is_imported_in_its_own_files_only():
    offenders = {
        _relative(path): brought
        for path in SOURCES
        if path.is_relative_to(ROOT / "skicml")
        and not path.stem.endswith("_torch")
        and path.parent.name != "_torch"
        and (brought := [m for m in _imported_at_load(_tree(path).body) if _brings_torch(m)])
    }
    assert offenders == {}


def test_the_search_for_imports_finds_them():
    source = (
        "import os\n"
        "try:\n    import torch.nn\nexcept ImportError:\n    from skorch import NeuralNet\n"
        "class A:\n    from skicml._torch import EMA\n"
        "def f():\n    import torch\n"
    )
    found = [name for name in _imported_at_load(ast.parse(source).body) if _brings_torch(name)]
    assert sorted(found) == ["skicml._torch", "skorch", "torch.nn"]


def _parts_imported(tree):
    """Parts of skicml that a file imports from, at its top or anywhere else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in modules if name.startswith("skicml."))


def test_task_packages_import_from_what_lies_below_them_only():
    offenders = {}
    for path in SOURCES:
        task = path.parent.name
        if path.parent.parent != ROOT / "skicml" or task in NOT_TASKS:
            continue
        allowed = {task} | BELOW_TASKS | BUILDS_ON.get(task, set())
        if brought := set(_parts_imported(_tree(path))) - allowed:
            offenders[_relative(path)] = brought
    assert offenders == {}


def test_the_search_for_parts_finds_them():
    source = (
        "import os\nfrom skicml import privacy\nfrom skicml.datasets._bandits import make\n"
        "def f():\n    import skicml.cluster\n"
    )
    assert sorted(_parts_imported(ast.parse(source))) == ["cluster", "datasets", "privacy"]


def _functions(path):
    """Name and body, without the docstring, of every function of a file."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            has_docstring = ast.get_docstring(node) is not None
            yield f"{_relative(path)}:{node.lineno} {node.name}", node.body[has_docstring:]


def _n_statements(body):
    return sum(isinstance(node, ast.stmt) for statement in body for node in ast.walk(statement))


def test_no_function_is_written_twice():
    places = defaultdict(list)
    for path in SOURCES:
        for place, body in _functions(path):
            # Two estimators may have the same parameters, or the same tags.
            declares = place.endswith((" __init__", " __sklearn_tags__"))
            if _n_statements(body) >= MIN_REPEATED_STATEMENTS and not declares:
                places["\n".join(map(ast.dump, body))].append(place)
    assert [found for found in places.values() if len(found) > 1] == []


# --- the public names --------------------------------------------------------------------


@pytest.mark.parametrize("package", [name for name in skicml.__all__ if name != "__version__"])
def test_every_public_name_is_listed_once_and_is_there(package):
    module = import_module(f"skicml.{package}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))


def _documented_objects():
    """Public classes and functions, once each; the common checks read those of estimators."""
    found = {getattr(import_module(f"skicml.{package}"), name) for package, name in PUBLIC_NAMES}
    found -= {cls for _, cls in all_estimators()}
    documented = (obj for obj in found if inspect.isclass(obj) or inspect.isroutine(obj))
    return sorted(documented, key=lambda obj: (obj.__module__, obj.__qualname__))


@pytest.mark.parametrize("obj", _documented_objects(), ids=lambda obj: obj.__qualname__)
def test_docstrings_of_public_names(obj):
    rules = DOCSTRING_RULES if inspect.isclass(obj) else DOCSTRING_RULES | {"RT01", "EX01"}
    errors = validate(f"{obj.__module__}.{obj.__qualname__}")["errors"]
    assert [f"{code}: {text}" for code, text in errors if code in rules] == []


def test_every_public_name_has_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    import_module("_ext.reference").write_pages(tmp_path)
    pages = {path.stem for path in tmp_path.glob("*.rst")}
    assert {f"skicml.{package}.{name}" for package, name in PUBLIC_NAMES} <= pages
    index = (tmp_path / "index.rst").read_text(encoding="utf-8")
    assert [name for name, _ in all_estimators() if f".{name}`" not in index] == []


def test_every_task_package_has_a_page_in_the_user_guide():
    packages = {cls.__module__.split(".")[1] for _, cls in all_estimators()}
    pages = {path.stem for path in (ROOT / "docs" / "user_guide").glob("*.rst")}
    assert packages - pages == set()
