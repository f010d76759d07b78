"""Which images are still learnt: groups of a small run, and of made-up logits."""

from pathlib import Path

import pytest
import torch

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import plan_of, read_study
from hitrate_lab.studies.networks.learnt import EDGES, LearntGroups, groups
from hitrate_lab.studies.networks.learnt_summary import pictures, tables

FILE = Path(__file__).resolve().parents[4] / "studies" / "mixing_example.toml"


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


def test_every_image_is_in_one_group(study, data):
    spec = {**plan_of(study)[0], "data_set": "images/mnist", "rows": 100, "looked_at": 1}
    spec["training"] = {**spec["training"], "epochs": 3, "batch_size": 20}
    found = LearntGroups().run(spec, Context(data))
    pairs = found["groups"]["right"] + found["groups"]["wrong"]
    assert sum(rows for rows, _ in pairs) == found["test_rows"] == 50
    assert sum(hits for _, hits in pairs) == round(50 * found["test_accuracy"])
    assert found["groups"] == LearntGroups().run(spec, Context(data))["groups"]


def test_groups_are_by_p_y_of_the_first_look():
    p = torch.tensor([[0.6, 0.35, 0.05], [0.85, 0.15, 0], [0.5, 0.5, 0], [0.1, 0.9, 0]])
    then = p.clamp(min=1e-9).log()
    now = torch.eye(3)[[1, 0, 1, 1]]
    found = groups(then, now, torch.tensor([1, 1, 1, 1]))
    assert found == {"right": [[1, 1]], "wrong": [[0, 0], [1, 0], [0, 0], [1, 1], [1, 1]]}
    assert len(found["wrong"]) == len(EDGES) - 1


def test_the_papers_three_groups_are_told(study):
    made = {"right": [[80, 76]], "wrong": [[5, 0], [5, 1], [4, 1], [3, 1], [3, 2]]}
    runs = [(spec, {"groups": made}) for spec in plan_of(study)]
    (table,) = tables(study, runs)
    assert table["rows"][0] == [
        *("fashion_mnist, mlp_128", "CE", "5"),
        *("80: 95.0 ± 0.0 %", "10: 40.0 ± 0.0 %", "10: 10.0 ± 0.0 %"),
    ]
    assert list(pictures(study, runs)) == ["mixing-example"]


def test_the_look_is_before_the_end(tmp_path):
    text = FILE.read_text(encoding="utf-8")
    (tmp_path / "mixing_example.toml").write_text(text.replace("looked_at = 14", "looked_at = 18"))
    with pytest.raises(BadInput, match="looked_at: needs an epoch before the last one"):
        read_study(tmp_path / "mixing_example.toml")
