"""Boosted trees trained for accuracy, in XGBoost and LightGBM.

A quarter of the training labels are drawn at random. Cross entropy pays for a wrong one by how sure
the trees are of the right one, the expected error counts it once. Whether that helps trees, which
can learn any row by heart, is what this compares.
"""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from hitrate.integrations import lightgbm, xgboost

rounds = {"n_estimators": 100, "n_jobs": 1}
hits: dict[str, list[float]] = {}
for seed in range(5):
    x, y = make_classification(2000, 20, n_informative=8, n_classes=3, random_state=seed)
    x, x_test, y, y_test = train_test_split(x, y, random_state=seed)
    random = np.random.default_rng(seed)
    y = np.where(random.random(len(y)) < 0.25, random.integers(3, size=len(y)), y)
    models = {
        "XGBoost": XGBClassifier(**rounds),
        "XGBoost, expected error": XGBClassifier(
            objective=xgboost.AccuracyObjective("error"), **rounds
        ),
        "LightGBM": lightgbm.AccuracyLGBMClassifier(verbose=-1, **rounds),
        "LightGBM, expected error": lightgbm.AccuracyLGBMClassifier(
            objective=lightgbm.AccuracyObjective("error"), verbose=-1, **rounds
        ),
    }
    for name, model in models.items():
        hits.setdefault(name, []).append(model.fit(x, y).score(x_test, y_test))

for name, values in hits.items():
    print(f"{name:26} {np.mean(values):.1%} ± {np.std(values, ddof=1):.1%}, {len(values)} seeds")
for host in ("XGBoost", "LightGBM"):
    gain = np.subtract(hits[f"{host}, expected error"], hits[host])
    print(f"{host}: {100 * gain.mean():+.1f} ± {100 * gain.std(ddof=1):.1f} points")
