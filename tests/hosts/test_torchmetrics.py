"""Expected accuracy as a metric of torchmetrics is that of the library."""

import pytest
import torch
from host_cases import CLASSES

pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from two_processes import run_in_two_processes

from hitrate import metrics
from hitrate.integrations.torchmetrics import ExpectedAccuracy


def batch(seed, rows=20, classes=CLASSES):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator)
    return logits, torch.randint(classes, (rows,), generator=generator)


def numbers(found):
    return {name: float(value) for name, value in found.items()}


def test_it_counts_what_the_library_s_counts():
    ours, theirs = ExpectedAccuracy(0.7), metrics.ExpectedAccuracy(0.7)
    hits = MulticlassAccuracy(CLASSES, average="micro")
    for seed in range(3):
        for metric in (ours, theirs, hits):
            metric.update(*batch(seed))
    assert numbers(ours.compute()) == numbers(theirs.compute())
    assert float(ours.compute()["accuracy"]) == pytest.approx(float(hits.compute()))
    ours.reset()
    assert float(ours(*batch(1))["accuracy"]) == pytest.approx(
        float(MulticlassAccuracy(CLASSES, average="micro")(*batch(1)))
    )


def test_it_stands_in_a_collection_and_merges():
    collection = MetricCollection({"noisy": ExpectedAccuracy()})
    collection.update(*batch(0))
    assert set(collection.compute()) == {"accuracy", "expected_accuracy"}
    one, other = ExpectedAccuracy(), ExpectedAccuracy()
    one.update(*batch(0))
    other.update(*batch(1))
    one.merge_state(other)
    assert float(one.rows) == 40


def of_one_process(rank):
    metric = ExpectedAccuracy()
    metric.update(*batch(rank, 5 + rank))
    return numbers(metric.compute())


@pytest.mark.slow
def test_processes_count_together():
    whole = metrics.ExpectedAccuracy()
    for rank in range(2):
        whole.update(*batch(rank, 5 + rank))
    for found in run_in_two_processes(of_one_process):
        assert found == pytest.approx(numbers(whole.compute()))
