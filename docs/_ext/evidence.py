"""Evidence page: tables made from the results files of the benchmarks, and from nothing else."""

import json
from math import floor, isfinite, log10

from . import methods, pages

INTRODUCTION = """\
The methods come from papers that make claims. This page shows what we measured when we checked
them: the figure of the paper where it gives one, a named baseline, and ours, over several seeds,
against a criterion that was set beforehand. A criterion that is not met is shown as such. All
numbers are read from ``benchmarks/results`` when the site is built.

To repeat a table, run its benchmark from the root of the repository, for instance
``python -m benchmarks.dsvc``.

.. role:: passed
.. role:: failed
"""

MARKS = {True: ":passed:`✓ yes`", False: ":failed:`✗ no`"}

EXPERIMENT_HEADER = [
    "Met",
    "Experiment",
    "Data",
    "Metric",
    "Paper",
    "Baseline",
    "skicml",
    "Criterion",
]
SPEED_HEADER = ["Work", "Peer", "Time ratio", "skicml", "Peer time", "Peak memory"]


def write_page(folder, results):
    """Write ``index.rst`` from every ``<method>.json`` in `results`."""
    reports = [json.loads(path.read_text("utf-8")) for path in results.glob("*.json")]
    reports.sort(key=lambda report: (not _estimators(report), _heading(report)))
    parts = [pages.title("Evidence"), INTRODUCTION]
    if reports:
        parts += [_overview(reports), *map(_method_section, reports)]
    else:
        parts.append("No benchmark has written its results yet.\n")
    pages.write(folder / "index.rst", "\n".join(parts))


def _overview(reports):
    rows = []
    for report in reports:
        passed = [row["passed"] for row in report["experiments"] if _is_judged(row)]
        ratios = [row["ratio"] for row in report["speed"]]
        rows.append(
            [
                f":ref:`{_heading(report)} <evidence-{report['method']}>`",
                pages.escape(report["paper"]["title"]),
                f"{sum(passed)} of {len(passed)}",
                _range(ratios),
            ]
        )
    header = ["Method", "Paper", "Criteria met", "Time ratio to the peer"]
    return "\n".join([pages.title("Overview", "-"), pages.list_table(header, rows)])


def _range(values):
    if not values:
        return "–"
    ends = _number(min(values)), _number(max(values))
    return " to ".join(dict.fromkeys(ends))


def _method_section(report):
    stem = report["method"]
    parts = [
        f".. _evidence-{stem}:\n",
        pages.title(_heading(report), "-"),
        f"*{pages.escape(report['paper']['title'])}*\n",
        f"Claim: {pages.escape(report['paper']['claim'])}\n",
        pages.list_table(
            EXPERIMENT_HEADER, map(_experiment_row, report["experiments"]), css_class="evidence"
        ),
    ]
    if stem in methods.guide_stems():
        parts.insert(2, f"The method is explained in the user guide: :ref:`{stem}`.\n")
    if report["speed"]:
        parts += [
            "Speed, both measured in turn in one run; a ratio below 1 is faster than the peer:\n",
            pages.list_table(SPEED_HEADER, map(_speed_row, report["speed"]), css_class="evidence"),
        ]
    parts.append(_environment(report["environment"]))
    return "\n".join(parts)


def _is_judged(experiment):
    """Whether the experiment has a criterion; some rows are there for comparison only."""
    return not experiment["criterion"].startswith("none")


def _estimators(report):
    return ", ".join(cls.__name__ for cls in methods.estimators_of(report["method"]))


def _heading(report):
    """The estimators of a method, or the name of a benchmark of shared code."""
    return _estimators(report) or report["method"].replace("_", " ").capitalize()


def _experiment_row(experiment):
    arrow = "↑" if experiment["higher_is_better"] else "↓"
    baseline, ours = experiment["baseline"], experiment["ours"]
    return [
        MARKS[experiment["passed"]] if _is_judged(experiment) else "–",
        pages.escape(experiment["name"]),
        pages.escape(experiment["data"]),
        f"{pages.escape(experiment['metric'])} {arrow}",
        _number(experiment["paper"]),
        f"{_spread(baseline)} ({pages.escape(baseline['name'])})",
        f"**{_spread(ours)}** ({ours['n_seeds']} {'seed' if ours['n_seeds'] == 1 else 'seeds'})",
        pages.escape(experiment["criterion"]),
    ]


def _speed_row(row):
    return [
        pages.escape(row["work"]),
        pages.escape(row["peer"]),
        f"**{_number(row['ratio'])}**",
        f"{_number(row['ours_s'])} s",
        f"{_number(row['peer_s'])} s",
        f"{_number(row['peak_mb'])} MiB",
    ]


def _environment(environment):
    names = {
        "python": "Python",
        "numpy": "NumPy",
        "scikit_learn": "scikit-learn",
        "torch": "PyTorch",
    }
    versions = [f"{label} {environment[key]}" for key, label in names.items() if key in environment]
    return f"Measured with {', '.join(versions)} on {environment['cpu_count']} CPU cores.\n"


def _number(value, digits=3):
    """A value to some significant digits; a dash for what the paper does not give."""
    if value is None:
        return "–"
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    magnitude = floor(log10(abs(value)))
    if not -4 < magnitude < 6:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, digits - 1 - magnitude):.{max(0, digits - 1 - magnitude)}f}"


def _spread(summary):
    """Mean and standard deviation over seeds; only the mean where nothing varies."""
    mean = _number(summary["mean"], digits=4)
    return f"{mean} ± {_number(summary['std'], digits=2)}" if summary["std"] else mean
