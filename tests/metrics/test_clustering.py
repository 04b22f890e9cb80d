from itertools import permutations

import numpy as np
import pytest

from skicml.metrics import clustering_accuracy_score, match_labels


def test_accuracy_is_the_best_over_all_matchings():
    rng = np.random.RandomState(0)
    for _ in range(20):
        y, labels = rng.randint(4, size=30), rng.randint(4, size=30)
        best = max(np.mean(np.array(order)[labels] == y) for order in permutations(range(4)))
        assert clustering_accuracy_score(y, labels) == pytest.approx(best)


def test_accuracy_does_not_depend_on_names():
    y = [0, 0, 1, 1, 2]
    assert clustering_accuracy_score(y, ["c", "c", "a", "a", "b"]) == 1.0


def test_more_clusters_than_classes_are_errors():
    assert clustering_accuracy_score([0, 0, 0, 0], [0, 1, 2, 3]) == 0.25
    assert clustering_accuracy_score([0, 1, 2, 3], [0, 0, 0, 0]) == 0.25


def test_accuracy_refuses_bad_input():
    with pytest.raises(ValueError, match="inconsistent"):
        clustering_accuracy_score([0, 1], [0, 1, 2])
    with pytest.raises(ValueError, match="empty"):
        clustering_accuracy_score([], [])


def test_matching_undoes_a_permutation():
    rng = np.random.RandomState(0)
    R = rng.dirichlet(np.ones(5) / 10, size=200)
    order = rng.permutation(5)
    columns = match_labels(R.T @ R[:, order])
    np.testing.assert_array_equal(R[:, order][:, columns], R)
