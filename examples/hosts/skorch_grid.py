"""skorch: a grid search over recipes, and probabilities under the noise that was trained with."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier

from hitrate.integrations.skorch import AccuracyCallback

torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
x = x.astype(np.float32) / 16

net = NeuralNetClassifier(
    torch.nn.Linear,
    module__in_features=64,
    module__out_features=10,
    criterion=torch.nn.CrossEntropyLoss,
    optimizer=torch.optim.SGD,
    optimizer__momentum=0.9,
    lr=0.5,
    max_epochs=10,
    train_split=None,
    verbose=0,
    callbacks=[("accuracy", AccuracyCallback("annealed"))],
)
search = GridSearchCV(
    net,
    {
        "callbacks__accuracy__recipe": ["cross_entropy", "annealed", "annealed_softmax"],
        "callbacks__accuracy__label_smoothing": [0.0, 0.1],
    },
    cv=3,
    scoring="accuracy",
)
search.fit(x, y)
for settings, score, spread in zip(
    search.cv_results_["params"],
    search.cv_results_["mean_test_score"],
    search.cv_results_["std_test_score"],
    strict=True,
):
    named = {key.split("__")[-1]: value for key, value in settings.items()}
    print(f"{score:.3f} ± {spread:.3f}", named)
print("sums of probabilities:", search.predict_proba(x[:3]).sum(1).round(6))
