"""The checklists of CONTRIBUTING.md: they name files that are there, few of them, and they work."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch
from test_readme import fenced_blocks

import hitrate
from hitrate.probability import NOISES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title):
    """The text under a heading."""
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def steps(title):
    """The numbered steps of a list, each with the file that it begins with."""
    text = section(title)
    found = re.findall(r"^\d+\. `([^`]+)`: (.*?)(?=^\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{title} has no steps"
    return found


# What each step tells to touch must be a name in its file.
LISTS = {
    "Add a noise": {
        "src/hitrate/probability/noises.py": ["Noise", "NOISES"],
        "tests/probability/noise_cases.py": ["DISTRIBUTIONS"],
    },
    "Add a link": {
        "src/hitrate/links.py": ["Link", "LINKS"],
        "tests/test_links.py": ["FORMULAS"],
    },
    "Add a loss": {
        "src/hitrate/losses/named.py": ["__all__"],
        "tests/losses/test_formulas.py": ["FORMULAS"],
    },
    "Add a recipe": {"src/hitrate/recipes.py": ["RECIPES"]},
    "Add a method of compare": {"src/hitrate_lab/models/methods.py": ["MODELS", "Family"]},
    "Add a published table": {"src/hitrate_lab/datasets/table_sets.py": ["TABLE_SETS"]},
    "Add a metric": {"src/hitrate_lab/metrics.py": ["Metric", "METRICS"]},
    "Add an image set": {
        "src/hitrate_lab/datasets/images/sets.py": ["IMAGE_SETS"],
        "tests/lab/datasets/test_image_sets.py": ["MAKERS"],
    },
    "Add a table or picture of results": {
        "src/hitrate_lab/pages/registry.py": ["Made", "GENERATORS"],
    },
    "Add a protocol": {
        "src/hitrate_lab/studies/registry.py": ["PROTOCOLS"],
        "tests/lab/studies/test_protocols.py": ["STUDIES"],
    },
}


@pytest.mark.parametrize("title", LISTS)
def test_a_list_names_one_source_and_at_most_one_test_file_with_what_to_touch(title):
    files = dict(steps(title))
    assert list(files) == list(LISTS[title])
    assert sum(path.startswith("src/") for path in files) == 1
    assert sum(path.startswith("tests/") for path in files) <= 1
    for path, names in LISTS[title].items():
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        there = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        there |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for name in names:
            assert name in there and f"`{name}`" in files[path], (path, name)


def test_every_path_that_the_page_names_is_there():
    for path in re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_what_the_page_adds_works():
    """The noise, link and loss of its examples, in one namespace, as a reader would run them."""
    before = dict(NOISES)
    space = {"__name__": "__main__"}
    try:
        for block in fenced_blocks(PAGE):
            if block.language == "python":
                source = "\n" * (block.line - 1) + block.code
                exec(compile(source, "CONTRIBUTING.md", "exec"), space)
        check_the_noise(space["Cosine"])
        check_the_loss(space["SquaredErrorLoss"], space["squared_error_loss"])
    finally:
        NOISES.clear()
        NOISES.update(before)


def check_the_noise(noise):
    logits = torch.tensor([[1.0, 0.0, -2.0]], dtype=torch.float64)
    target = torch.tensor([0])
    generator = torch.Generator().manual_seed(0)
    draws = noise().sample((200_000, 3), torch.float64, torch.device("cpu"), generator)
    hits = ((logits + draws).argmax(1) == 0).double()
    p = hitrate.expected_accuracy(logits, target, noise="cosine").item()
    assert abs(hits.mean().item() - p) < 4 * hits.std().item() / len(hits) ** 0.5


def check_the_loss(module, function):
    logits, target = torch.randn(6, 4), torch.arange(6) % 4
    loss = module(0.5, ignore_index=1, label_smoothing=0.1, reduction="none")
    options = {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "none"}
    assert torch.equal(loss(logits, target), function(logits, target, 0.5, **options))
    assert function.__name__ == "squared_error_loss"
    names = set(inspect.signature(function).parameters)
    balance = {"class_prior", "reweighting", "logit_adjustment", "class_margin"}
    assert names == {"logits", "target", "scale", "weight", "k", *balance, *options}
    assert repr(module(0.5)) == "SquaredErrorLoss(scale=0.5)"
