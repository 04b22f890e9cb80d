"""What a user installs: wheel and source distribution, and the wheel used far from the source."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import skicml

pytest.importorskip("hatchling", reason="hatchling builds the distributions")
pytest.importorskip("pip", reason="pip installs the wheel")

ROOT = Path(__file__).parent.parent
SMOKE_TEST = """
import sys
from importlib import metadata
from pathlib import Path

import skicml

assert Path(skicml.__file__).is_relative_to(sys.prefix), skicml.__file__
assert metadata.version("skicml") == skicml.__version__
for name in skicml.__all__:
    getattr(skicml, name)

from skicml import datasets
from skicml.decomposition import OPSA
from skicml.information import KnifeDensity

X, low_rank, _ = datasets.make_corrupted_low_rank(60, 40, rank=2, random_state=0)
assert abs(OPSA(6).fit(X).low_rank_ - low_rank).max() < 1e-3
assert KnifeDensity(2, max_epochs=1, random_state=0).fit(X[:, :3]).score(X[:, :3]) < 0
loaded = []
for name in datasets.__all__:
    if name.startswith("load_"):
        try:
            getattr(datasets, name)()
        except OSError as error:  # of the larger data sets that are not part of the package
            assert "SKICML_DATA" in str(error)
        else:
            loaded.append(name)
assert {"load_dermatology", "load_multiple_features"} <= set(loaded), loaded
"""


def _run(*command, cwd, **kwargs):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Wheel and source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def _sources(folder):
    """Files of a folder as they should be distributed."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    }


def test_wheel_holds_the_package_and_its_licences(distributions):
    wheel = zipfile.ZipFile(distributions[0])
    info = f"skicml-{skicml.__version__}.dist-info"
    names = {name for name in wheel.namelist() if not name.startswith(f"{info}/")}
    assert names == _sources("skicml")
    assert "skicml/py.typed" in names
    licences = {path.relative_to(ROOT) for path in ROOT.glob("skicml/datasets/data/LICENSE-*")}
    assert licences
    for licence in {Path("LICENSE"), *licences}:
        assert f"{info}/licenses/{licence.as_posix()}" in wheel.namelist()
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == skicml.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert "# skicml" in metadata.get_payload()  # the README


def test_source_distribution_holds_what_it_takes_to_test(distributions):
    with tarfile.open(distributions[1]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert distributions[1].name == f"skicml-{skicml.__version__}.tar.gz"
    assert _sources("skicml") | _sources("tests") | _sources("benchmarks") <= names
    assert {"pyproject.toml", "LICENSE", "README.md", "docs/conf.py"} <= names
    built = ("docs/_build", "docs/auto_examples", "docs/reference", "docs/evidence")
    assert [name for name in names if name.startswith(built)] == []
    assert distributions[1].stat().st_size < 8 * 2**20


def test_the_wheel_works_far_from_the_source(distributions, tmp_path):
    """In an environment of its own, which sees the dependencies but not this repository."""
    environment = tmp_path / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment), cwd=tmp_path)
    python = environment / "bin" / "python"
    install = ["install", "--no-deps", "--no-index", "--quiet", str(distributions[0])]
    _run(sys.executable, "-m", "pip", f"--python={python}", *install, cwd=tmp_path)
    site_packages = next(environment.glob("lib/python*/site-packages"))
    dependencies = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site_packages / "dependencies.pth").write_text("\n".join(dependencies))
    _run(str(python), "-I", "-c", SMOKE_TEST, cwd=tmp_path)
