"""The pages of the losses are complete, and what their tables say is what the code says."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import hitrate
from hitrate import links
from hitrate.losses import LOSSES
from hitrate.recipes import RECIPES
from hitrate.schedules import NAMED

DOCS = Path(__file__).resolve().parents[1] / "docs"
INDEX = DOCS / "losses" / "index.md"


def table(page: Path, name: str = "") -> list[list[str]]:
    """Cells of the table between two marks, without its head; or of the page's first table."""
    text = page.read_text(encoding="utf-8")
    if name:
        text = text.split(f"<!-- {name}:start -->")[1].split(f"<!-- {name}:end -->")[0]
    rows = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def properties(link: links.Link) -> list[str]:
    says = {True: "yes", False: "no"}
    return [
        f"{link.slope_at_one:.3g}",
        says[link.is_unbounded],
        f"{link.focus_point:.3g}",
        says[link.meets_criterion],
    ]


def link_of(code: str) -> links.Link:
    return eval(code.strip("`"), vars(links))


def gradient_over_p(loss, rivals=1):
    """p, and the loss's gradient in the target's logit there, the rivals equally likely."""
    p = torch.cat([torch.tensor([1e-7]), torch.linspace(0, 1, 20001)[1:-1], torch.tensor([1e-7])])
    p[-1] = 1 - p[-1]
    f = torch.logit(p.double()).requires_grad_()
    level = torch.full((len(p), rivals), 1 / rivals, dtype=torch.float64).log()
    target = torch.zeros(len(p), dtype=torch.long)
    values = loss(torch.cat([f[:, None], level], 1), target)
    (slope,) = torch.autograd.grad(values.sum(), f)
    return f.detach().sigmoid(), values.detach(), slope


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_page_that_shows_its_picture(name):
    page = DOCS / "losses" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text)
    assert f"../images/losses/{name}.png" in [path for _, path in pictures]
    for words, path in pictures:
        assert len(words) > 60, f"{path} is not described"
        assert 0 < (page.parent / path).stat().st_size < 80_000
    assert re.search(rf"\bhitrate\.{name}_loss\b", text)
    assert re.search(rf"\bhitrate\.{LOSSES[name].__name__}\b", text)


def test_the_index_of_losses_leads_to_every_page():
    toctree = re.search(r"```\{toctree\}\n(.*?)```", INDEX.read_text(encoding="utf-8"), re.DOTALL)
    listed = [line for line in toctree[1].splitlines() if line and line[0] != ":"]
    assert sorted(listed) == sorted(LOSSES)
    assert re.search(r"^losses/index$", (DOCS / "index.md").read_text(), re.MULTILINE)


def test_the_first_table_has_every_function_and_module():
    rows = {re.search(r"\((\w+)\.md\)", page)[1]: code for page, code, _ in table(INDEX)}
    assert rows == {name: f"`{name}_loss` `{module.__name__}`" for name, module in LOSSES.items()}


LINKED = [row for row in table(INDEX, "properties") if row[1] != "none"]
OTHERS = [row for row in table(INDEX, "properties") if row[1] == "none"]


@pytest.mark.parametrize("row", LINKED, ids=lambda row: f"{row[0]}-{row[1]}".replace("`", ""))
def test_properties_of_a_loss_are_those_of_the_link_it_has(row):
    name, link = row[0].strip("`"), link_of(row[1])
    assert row[2:] == properties(link)

    accepted = inspect.signature(LOSSES[name].__init__).parameters
    arguments = {key: value for key, value in vars(link).items() if key in accepted}
    loss = LOSSES[name](**arguments, **({"link": link} if "link" in accepted else {}))
    logits, target = torch.randn(50, 4, dtype=torch.float64) * 3, torch.randint(4, (50,))
    noise = "normal" if name == "exact" else "gumbel"
    log_p = hitrate.log_expected_accuracy(logits, target, noise=noise)
    torch.testing.assert_close(loss(logits, target), link(log_p).mean())


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row[0].strip("`"))
def test_properties_of_a_loss_without_link_are_what_it_does(row):
    loss = LOSSES[row[0].strip("`")](reduction="none")
    p, values, slope = gradient_over_p(loss, rivals=2 if "complement" in row[0] else 1)
    assert float(slope[-1] / (p * (1 - p))[-1]) == pytest.approx(float(row[2]), abs=1e-3)
    assert row[3] == ("yes" if values[0] > 10 else "no")
    if row[4] == "none":
        assert len(slope.unique()) == 2
    else:
        assert float(p[slope.abs().argmax()]) == pytest.approx(float(row[4]), abs=1e-4)
    assert (row[5] == "yes") == (row[3] == "yes" and row[2] == "-1")


def test_every_loss_is_in_the_table_of_properties_but_the_one_without_p():
    named = {row[0].strip("`") for row in LINKED + OTHERS}
    # Nor has the one whose p are of all classes, weighed.
    assert named == set(LOSSES) - {"max_mahalanobis_center", "expected_cost"}


def test_the_table_of_links_is_the_registry():
    rows = table(DOCS / "links.md", "properties")
    assert [row[0].strip("`") for row in rows] == list(links.LINKS)
    for name, code, _, *told in rows:
        link = links.LINKS[name.strip("`")]()
        assert link_of(code) == link
        assert code == f"`{link!r}`"
        assert told == properties(link)


def test_focus_points_are_where_the_gradient_is_largest():
    for link in [link_of(row[1]) for row in LINKED]:
        p, _, slope = gradient_over_p(
            lambda logits, y, link=link: link(logits.log_softmax(1)[:, 0])
        )
        assert float(p[slope.abs().argmax()]) == pytest.approx(link.focus_point, abs=1e-4)


def test_the_table_of_recipes_is_the_registry():
    expected = []
    for name, recipe in RECIPES.items():
        settings = ", ".join(f"{key}={value!r}" for key, value in recipe.settings.items())
        tail = ", gradients normalised" if recipe.normalize_gradient else ""
        expected.append([f"`{name}`", f"`{recipe.loss}({settings})`{tail}", recipe.source])
    assert table(DOCS / "recipes.md", "recipes") == expected


def test_the_table_of_named_schedules_is_the_registry():
    text = (DOCS / "schedules.md").read_text(encoding="utf-8").split("## The papers' settings")[1]
    rows = re.findall(r"^\| `([\w.-]+)` \| `(.*?)` \|", text, re.MULTILINE)
    assert dict(rows) == {name: repr(curve) for name, curve in NAMED.items()}


def exported(module: Path) -> list[str]:
    """What `__all__` says, of a module that need not be importable."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


def test_every_public_name_is_in_the_reference():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([A-Za-z_.]+)$", text, re.MULTILINE))
    listed |= set(re.findall(r"^\.\. autoclass:: hitrate\.(\S+)$", text, re.MULTILINE))
    modules = set(re.findall(r"`hitrate\.(\w+)[`.]", text))
    for name in hitrate.__all__:
        assert name in (modules if inspect.ismodule(getattr(hitrate, name)) else listed), name
    parts = {
        "links": links.LINKS.values(),
        "optim": map(vars(hitrate.optim).get, hitrate.optim.__all__),
    }
    for part, members in parts.items():
        for member in members:
            assert f"{part}.{member.__name__}" in listed
    package = Path(hitrate.__file__).parent
    for module in [package / "metrics.py", *(package / "integrations").glob("*.py")]:
        path = ".".join(module.relative_to(package).with_suffix("").parts)
        for name in exported(module):
            assert f"{path}.{name}" in listed
    for name in exported(package / "sklearn" / "__init__.py"):
        assert {f"sklearn.{name}", name} & listed


def test_the_versions_of_hosts_are_those_of_pins_and_extras():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    pins = dict(re.findall(r"^(\S+)==(\S+)$", (DOCS.parent / "constraints.txt").read_text(), re.M))
    rows = table(DOCS / "hosts" / "index.md", "versions")
    assert len(rows) == 9
    for host, _, tested, oldest in rows:
        name = re.search(r"\[(\w+)\]", host)[1]
        assert (tested, f"{name}>={oldest}") == (pins[name], extras[name][0])


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    done = subprocess.run([*command, DOCS, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]*)", text)
        loaded += re.findall(r"<link[^>]* rel=\"stylesheet\"[^>]* href=\"([^\"]*)", text)
        assert not [path for path in loaded if re.match(r"\w+:|//", path)], page.name
    assert "mathjax/tex-svg.js" in (tmp_path / "math.html").read_text(encoding="utf-8")
    assert (tmp_path / "_static" / "mathjax" / "tex-svg.js").exists()


def test_every_picture_is_shown_on_some_page():
    shown = set()
    for page in DOCS.rglob("*.md"):
        for path in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page.read_text(encoding="utf-8")):
            shown.add((page.parent / path).resolve())
    assert set((DOCS / "images" / "losses").glob("*.png")) <= shown
