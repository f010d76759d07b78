"""The study of imbalanced tables: its table is on the pages, its metrics are scikit-learn's."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import imbalanced

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"balanced_accuracy": "balanced.md", "f1_macro": "f_beta.md"}


@pytest.mark.parametrize(("metric", "page"), PAGES.items(), ids=PAGES)
def test_the_page_has_the_table_of_the_committed_results(metric, page):
    document = json.loads((ROOT / "benchmarks" / "results" / "imbalanced.json").read_text())
    assert len(document["tables"]) == imbalanced.TABLES
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    shown = text.split("<!-- imbalanced:start -->\n")[1].split("<!-- imbalanced:end -->")[0]
    assert shown == imbalanced.table(document, metric)


def test_the_metrics_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    y, said = random.integers(4, size=(2, 50))
    assert imbalanced.balanced_accuracy(y, said) == pytest.approx(balanced_accuracy_score(y, said))
    assert imbalanced.f1_macro(y, said) == pytest.approx(f1_score(y, said, average="macro"))


def test_offsets_are_never_worse_than_none():
    random = np.random.default_rng(1)
    y = random.choice(3, 200, p=[0.8, 0.15, 0.05])
    scores = random.standard_normal((200, 3)) + 1.5 * np.eye(3)[y] + np.log([0.8, 0.15, 0.05])
    for metric in imbalanced.METRICS.values():
        moved = scores + imbalanced.offsets(scores, y, metric)
        assert metric(y, moved.argmax(1)) > metric(y, scores.argmax(1))
