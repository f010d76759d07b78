"""How many of scikit-learn's estimator checks `AccuracyClassifier` passes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sklearn.utils.estimator_checks import check_estimator

from hitrate.sklearn import AccuracyClassifier

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "sklearn"))

from expected_failures import ESTIMATORS, EXPECTED


def estimator_checks() -> dict[str, Any]:
    """Counts for each way to use the estimator, and the exceptions with their reasons."""
    counts = {}
    for name, settings in ESTIMATORS.items():
        results = check_estimator(
            AccuracyClassifier(**settings),
            expected_failed_checks=EXPECTED,
            on_skip=None,
            on_fail=None,
        )
        counts[name] = dict(Counter(result["status"] for result in results))
        counts[name]["not passed"] = sorted(
            {r["check_name"]: r["status"] for r in results if r["status"] != "passed"}.items()
        )
        print(name, counts[name], flush=True)
    return {"what": "sklearn.utils.estimator_checks", "counts": counts, "exceptions": EXPECTED}
