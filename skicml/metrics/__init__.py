"""Metrics that the papers use and scikit-learn lacks."""

from skicml.metrics._clustering import clustering_accuracy_score, match_labels
from skicml.metrics._generative import (
    classifier_two_sample_test,
    frechet_distance,
    memorization_ratio,
    precision_recall_knn,
    sliced_wasserstein,
)

__all__ = [
    "classifier_two_sample_test",
    "clustering_accuracy_score",
    "frechet_distance",
    "match_labels",
    "memorization_ratio",
    "precision_recall_knn",
    "sliced_wasserstein",
]
