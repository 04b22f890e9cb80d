"""Metrics that the papers use and scikit-learn lacks."""

from skicml.metrics._clustering import clustering_accuracy_score, match_labels

__all__ = ["clustering_accuracy_score", "match_labels"]
