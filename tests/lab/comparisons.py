"""Comparison documents made by hand, and what is left of one without its times."""

from hitrate_lab.runs.store import Run, key_of


def run(method, repeat, fold, rows, predicted, probability=None, **result):
    """A run as the store gives it back; accuracy is for the caller to say."""
    specification = {"method": method, "repeat": repeat, "fold": fold}
    result = {
        "accuracy": 0.5,
        "log_loss": 0.7,
        "fit_seconds": 0.1,
        "tune_seconds": 0.4,
        "parameters": {},
        "features": 3,
        "rows": list(rows),
        "predicted": list(predicted),
        "probability": list(probability or [0.75] * len(rows)),
        "curve": None,
        **result,
    }
    return Run(key_of(specification), specification, result, "2026-01-01T00:00:00Z", {})


def timeless(document):
    """All of a document but its times, the machine, and how many processes there were."""
    return {
        **{name: value for name, value in document.items() if name != "environment"},
        "settings": {k: v for k, v in document["settings"].items() if k != "jobs"},
        "methods": [
            {
                **{k: v for k, v in method.items() if not k.endswith("_seconds")},
                "folds": [
                    {k: v for k, v in fold.items() if not k.endswith("_seconds")}
                    for fold in method["folds"]
                ],
            }
            for method in document["methods"]
        ],
    }
