"""A linear classifier trained for accuracy, in the place of logistic regression.

One row in ten is an outlier far on the wrong side. The likelihood of these drags the boundary of
logistic regression away; expected accuracy counts them as ten errors in a hundred, however far off.
"""

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hitrate.sklearn import AccuracyClassifier

random = np.random.default_rng(0)
x = random.standard_normal((600, 4))
y = np.where(x[:, 0] + x[:, 1] > 0.3, "won", "lost")
outliers = random.random(600) < 0.1
x[outliers] = 8 * np.abs(x[outliers])
y[outliers] = "lost"

likelihood = LogisticRegressionCV(
    Cs=10, cv=5, scoring="accuracy", l1_ratios=(0,), use_legacy_attributes=False
)
for model in (likelihood, AccuracyClassifier(random_state=0)):
    pipeline = make_pipeline(StandardScaler(), model)
    accuracy = cross_val_score(pipeline, x, y, cv=5)
    print(f"{type(model).__name__}: {accuracy.mean():.1%} ± {accuracy.std():.1%}")

model = AccuracyClassifier(random_state=0).fit(x, y)
print(f"chosen: l2 {model.l2_:.2g}, sigma {model.sigma_:.2g}, margin {model.margin_}")
print("weights", model.coef_.round(2), "probabilities of the first row", model.predict_proba(x[:1]))
assert accuracy.mean() > 0.85
