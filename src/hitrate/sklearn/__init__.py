"""Estimators for scikit-learn; needs ``pip install hitrate[sklearn]``."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hitrate.sklearn needs scikit-learn: pip install 'hitrate[sklearn]'"
    ) from error

from hitrate.calibration import Calibration
from hitrate.sklearn.classifier import AccuracyClassifier
from hitrate.sklearn.mlp import AccuracyMLPClassifier

__all__ = ["AccuracyClassifier", "AccuracyMLPClassifier", "Calibration"]
