"""What the paper claims of CAROTS, on data whose causal structure is known."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from benchmarks.carots import (
    contrast_data,
    contrast_detector,
    lorenz_data,
    lorenz_detector,
    terms_auroc,
    window_labels,
)

TERMS = ["contrastive", "causal", "ensemble"]


def test_window_labels():
    labels = np.array([0, 0, 1, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(window_labels(labels, 3), [1, 1, 1, 0, 1, 1])


@pytest.fixture(scope="module")
def contrast_results():
    """AUROC of every term for two seeds, mean over ten draws of anomalies; and the fits."""
    train, draws = contrast_data(range(10))
    detectors = [contrast_detector(seed).fit(train) for seed in range(2)]
    results = np.array(
        [
            np.mean([terms_auroc(detector, X, y)[:3] for X, y in draws], axis=0)
            for detector in detectors
        ]
    )
    return detectors, dict(zip(TERMS, results.T)), train, draws


def test_the_contrastive_term_earns_its_place(contrast_results):
    detectors, auroc, _, _ = contrast_results
    assert auroc["contrastive"].min() >= 0.80
    assert auroc["ensemble"].min() >= 0.82
    assert (auroc["ensemble"] - auroc["causal"]).mean() >= 0.15
    for detector in detectors:
        curve = detector.loss_curve_
        assert curve["loss"][-1] <= 3
        assert curve["loss"][-1] < 0.5 * curve["chance"][-1]


def test_rows_without_their_past_do_not_show_it(contrast_results):
    _, auroc, train, draws = contrast_results
    forest = IsolationForest(random_state=0).fit(train)
    rows = [roc_auc_score(y[9:], -forest.score_samples(X)[9:]) for X, y in draws]
    assert auroc["ensemble"].min() >= np.mean(rows) + 0.1


def test_anomalies_of_a_chaotic_system():
    train, tests = lorenz_data(0)
    detector = lorenz_detector(0).fit(train)
    floors = {
        "point_global": 0.90,
        "point_contextual": 0.85,
        "collective_trend": 0.85,
        "collective_global": 0.80,
    }
    for kind, (X, y) in tests.items():
        assert terms_auroc(detector, X, y)[2] >= floors[kind], kind
