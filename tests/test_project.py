"""What the project says of itself: README, results files, version."""

import json
import re
from pathlib import Path

import pytest

import skicml
from skicml.utils import all_estimators

ROOT = Path(__file__).parent.parent
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def _python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("block", _python_blocks(ROOT / "README.md"))
def test_code_blocks_of_the_readme_run(block):
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_commands_and_files_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = set(re.findall(r"^make ([\w-]+)", text, flags=re.MULTILINE))
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert targets
    assert targets <= set(rules)
    files = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:md|txt|py|toml|json))`", text)
    assert files
    for name in files:
        assert any((ROOT / folder / name).is_file() for folder in ("", "tests")), name


def test_readme_names_every_estimator():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name, _ in all_estimators() if not re.search(rf"\b{name}\b", text)]
    assert missing == []


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_files_follow_the_schema(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content.keys() == {"method", "paper", "experiments", "speed", "environment"}
    assert content["method"] == path.stem
    assert (ROOT / "benchmarks" / f"{path.stem}.py").is_file()
    assert content["paper"].keys() == {"title", "claim"}
    assert content["experiments"]
    for experiment in content["experiments"]:
        assert experiment.keys() == {
            "name",
            "data",
            "metric",
            "higher_is_better",
            "paper",
            "baseline",
            "ours",
            "criterion",
            "passed",
        }
        assert isinstance(experiment["passed"], bool)
        assert experiment["paper"] is None or isinstance(experiment["paper"], (int, float))
        assert experiment["baseline"].keys() == {"name", "mean", "std"}
        assert experiment["ours"].keys() == {"mean", "std", "n_seeds"}
    for row in content["speed"]:
        assert row.keys() == {"work", "peer", "ratio", "ours_s", "peer_s", "peak_mb"}


def test_the_version_stands_in_one_place():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {skicml.__version__}\n" in citation


def test_the_changelog_begins_with_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, flags=re.MULTILINE)
    assert newest[1] in (skicml.__version__, "Unreleased")


def test_unknown_attribute_of_the_package():
    with pytest.raises(AttributeError, match="no attribute 'clusters'"):
        _ = skicml.clusters


def test_lazy_packages_are_listed():
    assert set(skicml.__all__) <= set(dir(skicml))
    assert skicml.metrics.clustering_accuracy_score([0, 1], [1, 0]) == 1.0
