"""What every benchmark file shares: interleaved timing, peak memory, the results file."""

import json
import os
import platform
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import sklearn

RESULTS = Path(__file__).parent / "results"


def interleaved(ours, peer, repeats=5):
    """Time two callables in turn and compare them.

    Parameters
    ----------
    ours, peer : callable
        The work, without arguments; each is run once before the clock starts.
    repeats : int, default=5
        Timed runs of each, in the order ours, peer, ours, peer, ...

    Returns
    -------
    timing : dict
        ``ratio`` (median of the pairwise ratios ours / peer), ``ours_s`` and ``peer_s``
        (median seconds), ``peak_mb`` (memory that one run of ours adds).
    """
    peak = peak_mb(ours)
    peer()
    seconds = np.array([[_seconds(ours), _seconds(peer)] for _ in range(repeats)])
    return {
        "ratio": float(np.median(seconds[:, 0] / seconds[:, 1])),
        "ours_s": float(np.median(seconds[:, 0])),
        "peer_s": float(np.median(seconds[:, 1])),
        "peak_mb": peak,
    }


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _resident_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mb(work, interval=0.005):
    """Peak of the resident memory that `work()` adds, in MiB, sampled every `interval` s.

    It counts what numpy and torch allocate alike, which tracemalloc does not.
    """
    start = peak = _resident_mb()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(interval):
            peak = max(peak, _resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        peak = max(peak, _resident_mb())
        done.set()
        watcher.join()
    return peak - start


class Report:
    """Collect the results of one method and write ``results/<method>.json``.

    Parameters
    ----------
    method : str
        Name of the benchmark file.
    title, claim : str
        The paper, and what it claims that is measured here.
    """

    def __init__(self, method, title, claim):
        self.method = method
        self.paper = {"title": title, "claim": claim}
        self.experiments = []
        self.speed = []

    def experiment(
        self,
        name,
        *,
        data,
        metric,
        ours,
        baseline,
        baseline_name,
        criterion,
        passed,
        paper=None,
        higher_is_better=True,
    ):
        """Add one experiment; `ours` and `baseline` hold one value a seed."""
        ours, baseline = np.atleast_1d(ours), np.atleast_1d(baseline)
        self.experiments.append(
            {
                "name": name,
                "data": data,
                "metric": metric,
                "higher_is_better": higher_is_better,
                "paper": paper,
                "baseline": {
                    "name": baseline_name,
                    "mean": float(baseline.mean()),
                    "std": float(baseline.std()),
                },
                "ours": {
                    "mean": float(ours.mean()),
                    "std": float(ours.std()),
                    "n_seeds": int(ours.size),
                },
                "criterion": criterion,
                "passed": bool(passed),
            }
        )
        print(
            f"{'ok    ' if passed else 'FAILED'} {name} [{data}] {metric}: ours {ours.mean():.4g} "
            f"± {ours.std():.2g}, {baseline_name} {baseline.mean():.4g}, paper {paper}"
            f" ({criterion})",
            flush=True,
        )

    def timing(self, work, peer, ours_call, peer_call, repeats=5):
        """Add the comparison of speed of two callables, see :func:`interleaved`."""
        row = {"work": work, "peer": peer, **interleaved(ours_call, peer_call, repeats)}
        self.speed.append(row)
        print(f"speed {work} against {peer}: ratio {row['ratio']:.3g}", row, flush=True)
        return row

    def run(self, *parts):
        """Call each part of a benchmark with the report, and print how long it took."""
        for part in parts:
            print(f"-- {part.__name__}: {_seconds(partial(part, self)):.0f} s", flush=True)

    def write(self):
        """Write the results file."""
        import torch

        environment = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit_learn": sklearn.__version__,
            "torch": torch.__version__,
            "cpu_count": os.cpu_count(),
        }
        content = {
            "method": self.method,
            "paper": self.paper,
            "experiments": self.experiments,
            "speed": self.speed,
            "environment": environment,
        }
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.method}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        print(f"wrote {path}")
