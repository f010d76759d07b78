import gzip
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.texts import TEXT_SETS, read_texts, read_vectors

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def write(path, text, pack=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(pack(content) if pack else content)


def test_a_task_of_glue_in_its_own_layout(tmp_path):
    write(tmp_path / "SST-2/train.tsv", 'sentence\tlabel\nso "good"\t1\nbad\t0\n')
    write(tmp_path / "SST-2/dev.tsv", "sentence\tlabel\nfine\t1\n")
    found = read_texts("sst2", data_dir=tmp_path)
    assert found.train.first == ('so "good"', "bad")
    assert found.train.second is None
    assert found.train.labels.tolist() == [1, 0]
    assert found.classes == ("0", "1")
    assert found.validation.first == ("fine",)
    assert found.test is None


def test_a_file_that_does_not_name_its_columns(tmp_path):
    write(tmp_path / "GLUE/CoLA/train.tsv", "gj04\t1\t\tThey sailed.\ngj04\t0\t*\tSailed they.\n")
    found = read_texts("cola", data_dir=tmp_path)
    assert found.train.first == ("They sailed.", "Sailed they.")
    assert found.train.labels.tolist() == [1, 0]


def test_pairs_and_words_as_labels(tmp_path):
    head = "index\tquestion\tsentence\tlabel\n"
    rows = "0\tWho?\tA man.\tnot_entailment\n1\tWhen?\tIn May.\tentailment\n"
    write(tmp_path / "QNLI/train.tsv.gz", head + rows, gzip.compress)
    found = read_texts("qnli", data_dir=tmp_path)
    assert found.train.second == ("A man.", "In May.")
    assert found.classes == ("entailment", "not_entailment")
    assert found.train.labels.tolist() == [1, 0]


def test_quoted_cells_and_rows_without_a_text(tmp_path):
    text = ',Review Text,Recommended IND\n0,"Soft, ""silky""\nand warm",1\n1,,1\n2,Thin,0\n'
    write(tmp_path / "womens_reviews/womens_clothing_ecommerce_reviews.csv.xz", text, lzma.compress)
    found = read_texts("clothing_reviews", data_dir=tmp_path)
    assert found.train.first == ('Soft, "silky"\nand warm', "Thin")


def test_numbers_as_labels_are_in_their_order(tmp_path):
    rows = "".join(f"s\t{label}\n" for label in (10, 9, 2))
    write(tmp_path / "sentence_cls/trec_train.tsv", "sentence\tlabel\n" + rows)
    assert read_texts("trec", data_dir=tmp_path).classes == ("2", "9", "10")


@pytest.mark.parametrize("name", TEXT_SETS)
def test_a_set_that_is_missing_is_one_line(name, tmp_path):
    with pytest.raises(BadInput, match=f"text set {name} is not in") as told:
        read_texts(name, data_dir=tmp_path)
    assert "\n" not in str(told.value)


def test_broken_files_are_told(tmp_path):
    file = tmp_path / "SST-2/train.tsv"
    for content, complaint in (
        ("sentence\tlabel\ngood\t1\textra\n", "row 2: 3 cells, where there are 2"),
        ("text\tlabel\ngood\t1\n", "has no column 'sentence'"),
    ):
        write(file, content)
        with pytest.raises(BadInput, match=complaint):
            read_texts("sst2", data_dir=tmp_path)
    write(file, "sentence\tlabel\ngood\t1\n")
    write(tmp_path / "SST-2/dev.tsv", "sentence\tlabel\nbad\t0\n")
    with pytest.raises(BadInput, match="label '0' is in no training row"):
        read_texts("sst2", data_dir=tmp_path)
    with pytest.raises(BadInput, match="no text set 'sst3'"):
        read_texts("sst3")


def test_vectors_of_words(tmp_path):
    file = tmp_path / "glove.txt"
    write(file, "the 0.5 -1\n. 1 2\nof 3 4\n")
    words, vectors = read_vectors(file)
    assert words == ["the", ".", "of"]
    np.testing.assert_array_equal(vectors, [[0.5, -1], [1, 2], [3, 4]])
    assert read_vectors(file, {"of"})[0] == ["of"]
    for content, complaint in (
        ("the x\n", "line 1: not a word"),
        ("a 1 2\nb 1\n", "line 2: 1 numb"),
    ):
        write(file, content)
        with pytest.raises(BadInput, match=complaint):
            read_vectors(file)


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [
        ("sst2", (67_349, 872, 1_821), 2),
        ("cola", (8_551, 1_043, None), 2),
        ("mrpc", (4_076, None, 1_725), 2),
        ("rte", (2_490, 277, None), 2),
        ("wnli", (635, 71, None), 2),
        ("trec", (5_452, None, 500), 6),
        ("sst5", (8_544, 1_101, 2_210), 5),
        ("subj", (10_000, None, None), 2),
        ("mr", (10_662, None, None), 2),
        ("cr", (3_775, None, None), 2),
        ("mpqa", (10_606, None, None), 2),
        ("banking77", (10_003, None, 3_080), 77),
        ("clinc150", (15_000, 3_000, 4_500), 150),
        ("clinc150_imbalanced", (10_525, 3_000, 4_500), 150),
        ("clothing_reviews", (22_641, None, None), 2),
        ("clothing_ratings", (22_641, None, None), 5),
    ],
)
def test_the_published_sets_have_the_published_sizes(name, rows, classes):
    folder = SHARED if (SHARED / "text").is_dir() else None
    try:
        found = read_texts(name, data_dir=folder)
    except BadInput as missing:
        pytest.skip(str(missing))
    parts = (found.train, found.validation, found.test)
    assert tuple(None if part is None else len(part) for part in parts) == rows
    assert len(found.classes) == classes
    if name == "sst2":
        assert Counter(found.train.labels.tolist()) == {1: 37_569, 0: 29_780}
