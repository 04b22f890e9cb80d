"""Which estimators a method brings.

A method is known by one name, here called its stem: ``skicml/<package>/_<stem>.py``,
``docs/user_guide/_sections/<stem>.rst`` and ``benchmarks/results/<stem>.json``. A second
estimator of a method may live in ``_<stem>_<more>.py``. A section of the user guide on what all
methods of a package share is named ``<package>_<topic>.rst``.
"""

from pathlib import Path

from skicml.utils import all_estimators

SECTIONS = Path(__file__).parent.parent / "user_guide" / "_sections"


def guide_stems():
    """Stems of the methods that have a section in the user guide."""
    return sorted(path.stem for path in SECTIONS.glob("*.rst"))


def packages():
    """Names of the task packages that hold estimators, e.g. ``"cluster"``."""
    return sorted({cls.__module__.split(".")[1] for _, cls in all_estimators()})


def sections_of(package):
    """Stems of the user guide sections of a package: general ones, then one a method."""
    general = [stem for stem in guide_stems() if stem.startswith(f"{package}_")]
    estimators = [cls for _, cls in all_estimators(package=package)]
    methods = [stem for stem in guide_stems() if any(belongs_to(cls, stem) for cls in estimators)]
    return general + methods


def belongs_to(cls, stem):
    """Whether the class is part of the method."""
    module = cls.__module__.rsplit(".", 1)[-1]
    return f"{module}_".startswith(f"_{stem}_")


def estimators_of(stem):
    """Public estimator classes of a method."""
    return [cls for _, cls in all_estimators() if belongs_to(cls, stem)]
