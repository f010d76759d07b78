"""The picture of imports is that of the code, and the tracer counts what is called."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_imports import LAYERS

from hitrate_lab.pages.house.graph_picture import graph_picture
from hitrate_lab.pages.house.import_graph import graph_of, reduced, rows_of
from hitrate_lab.pages.house.sizes import PACKAGES, sizes_of
from hitrate_lab.pages.house.walks import TRACER

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def package(folder, **files):
    """A package of the files, whose names have __ for a slash."""
    for name, text in files.items():
        path = folder / "house" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "house"


def test_parts_import_what_their_files_say(tmp_path):
    found = graph_of(
        package(
            tmp_path,
            roof="import house.walls.brick\nfrom house import cellar",
            walls__brick="def f():\n    from ..cellar import stone",
            walls__window="from . import brick\nimport json\nimport houses.roof",
            cellar="",
        )
    )
    assert found == {"cellar": set(), "roof": {"walls", "cellar"}, "walls": {"cellar"}}
    assert reduced(found) == {"cellar": set(), "roof": {"walls"}, "walls": {"cellar"}}
    assert rows_of(found) == [["roof"], ["walls"], ["cellar"]]


def test_a_circle_is_an_error():
    with pytest.raises(ValueError, match="a, b import one another in a circle"):
        rows_of({"a": {"b"}, "b": {"a"}, "c": {"a"}})


@pytest.mark.parametrize("name", PACKAGES)
def test_rows_of_the_picture_and_of_the_rules_have_the_same_order(name):
    graph = graph_of(ROOT / "src" / name)
    rank = {part: number for number, row in enumerate(LAYERS[name]) for part in row}
    assert graph.keys() == rank.keys()
    assert all(rank[part] < rank[other] for part, others in graph.items() for other in others)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_part_has_a_box_and_every_arrow_points_down(name):
    graph = graph_of(ROOT / "src" / name)
    root = ElementTree.fromstring(graph_picture(graph, name))
    boxes = [words.text for words in root.iter(f"{SVG}text")]
    alone = {part for part, others in graph.items() if not others}
    alone -= set().union(*graph.values())
    assert sorted(boxes) == sorted(graph.keys() - alone)
    paths = [path.get("d").split() for path in root.iter(f"{SVG}path")]
    assert len(paths) == sum(map(len, reduced(graph).values()))
    tops = [float(box.get("y")) for box in root.iter(f"{SVG}rect") if box.get("y")]
    for path in paths:
        assert float(path[1]) < float(path[-1])
    assert min(tops) >= 0 and max(tops) + 30 <= float(root.get("height"))


PROGRAM = """
import sys
import house.walls
house.walls.outer()
house.walls.outer()
sys.stdout.write("done")
"""
WALLS = """
import threading
class Wall:
    def __init__(self):
        self.bricks = [brick(k) for k in range(3)]
def brick(k):
    return (lambda: k)()
def never():
    pass
def elsewhere():
    pass
def outer():
    Wall()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
"""


def test_the_tracer_writes_each_function_once_in_the_order_of_first_calls(tmp_path):
    package(tmp_path / "src", walls=WALLS, __init__="")
    (tmp_path / "sitecustomize.py").write_text(TRACER)
    source, log = tmp_path / "src", tmp_path / "called"
    places = {
        "PYTHONPATH": f"{tmp_path}:{source}",
        "WALK_SOURCE": str(source),
        "WALK_LOG": str(log),
    }
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=places, capture_output=True)
    assert run.stdout == b"done", run.stderr
    called = ["outer", "Wall.__init__", "brick", "elsewhere"]
    assert log.read_text().splitlines() == [f"house/walls.py:{name}" for name in called]


def test_sizes_count_files_and_lines_of_each_folder(tmp_path):
    for name in PACKAGES:
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("1\n2\n")
        (tmp_path / name / "inner" / "b.py").write_text("1\n")
    sizes = sizes_of(tmp_path)
    assert sizes["hitrate"] == {"files": 1, "lines": 2}
    assert sizes["hitrate_lab/inner"] == {"files": 1, "lines": 1}
