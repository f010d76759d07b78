"""The published sets against what their provenance says, and against the accuracies of papers."""

import gzip
import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets import names, read_exact, read_uci
from hitrate_lab.datasets.exact import prepare, read_raw
from hitrate_lab.datasets.files import content_digest, read_verified
from hitrate_lab.datasets.table_sets import TABLE_SETS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "data.md"


# Rows of the training part and the test part, columns that are used, and rows of each class, as
# the UCI pages and PROVENANCE.md of the data folder have them.
TEN = {
    "adult": (32561, 16281, 14, {"<=50K": 37155, ">50K": 11687}),
    "annealing": (798, 100, 38, {"1": 8, "2": 99, "3": 684, "5": 67, "U": 40}),
    "audit-risk": (620, 156, 26, {"0": 471, "1": 305}),
    "balance-scale": (500, 125, 4, {"B": 49, "L": 288, "R": 288}),
    "breast-cancer-wisconsin": (455, 114, 30, {"B": 357, "M": 212}),
    "car": (1382, 346, 6, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}),
    "cylinder-bands": (432, 108, 35, {"band": 228, "noband": 312}),
    "dry-bean": (
        10888,
        2723,
        16,
        {
            "BARBUNYA": 1322,
            "BOMBAY": 522,
            "CALI": 1630,
            "DERMASON": 3546,
            "HOROZ": 1928,
            "SEKER": 2027,
            "SIRA": 2636,
        },
    ),
    "mice-protein": (
        864,
        216,
        77,
        {
            "c-CS-m": 150,
            "c-CS-s": 135,
            "c-SC-m": 150,
            "c-SC-s": 135,
            "t-CS-m": 135,
            "t-CS-s": 105,
            "t-SC-m": 135,
            "t-SC-s": 135,
        },
    ),
    "wine": (142, 36, 13, {"1": 59, "2": 71, "3": 48}),
}
# They take as long as all others.
LARGE = ("adult", "dry-bean", "mice-protein")


def each_of(names):
    """Data sets one by one, the large ones not for every change."""
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in names]
    )


ten = each_of(TEN)

# Columns of "Sklearn" in Tables 1 and 2 of the EXACT paper, with the regularisation of Table 8.
# mice-protein and dry-bean have none, and where a solver stops decides their last digits.
PRINTED = {
    "adult": (10, 85.33, 85.28),
    "annealing": (0, 100.00, 100.00),
    "audit-risk": (1, 99.19, 98.72),
    "balance-scale": (0, 91.40, 92.00),
    "breast-cancer-wisconsin": (0.1, 98.68, 95.61),
    "car": (0.1, 94.50, 92.20),
    "cylinder-bands": (1, 80.05, 72.22),
    "wine": (0, 100.00, 100.00),
}


def test_the_ten_and_the_hundred_and_twenty_one_are_listed(tmp_path):
    assert list(names("exact")) == sorted(TEN)
    listed = names("uci121", data_dir=tmp_path)
    assert len(listed) == 120 and "miniboone" not in listed
    assert sum(name.startswith("uci121/") for name in TABLE_SETS) == 121
    with pytest.raises(BadInput, match="no collection 'uci'"):
        names("uci")


# The ten of EXACT


@ten
@pytest.mark.parametrize("follow", ["tables", "text"])
def test_the_ten_have_their_rows_and_classes(name, follow, published):
    train, test, columns, counts = TEN[name]
    if name == "cylinder-bands" and follow == "tables":
        train, counts = 431, {**counts, "band": 227}
    found = read_exact(name, follow=follow, data_dir=published)
    assert found.X_train.shape == (train, found.X_test.shape[1])
    assert len(found.X_test) == len(found.y_test) == test
    assert len(found.y_train) == train
    assert found.classes == tuple(sorted(counts))
    labels = np.concatenate([found.y_train, found.y_test])
    assert np.bincount(labels).tolist() == [counts[each] for each in found.classes]
    assert found.X_validation is None and found.y_validation is None
    features, _, _ = read_raw(name, published)
    assert features.shape[1] == columns == TABLE_SETS[f"exact/{name}"].features


@each_of(PRINTED)
def test_logistic_regression_has_the_accuracies_that_the_paper_prints(name, published):
    regularisation, train, test = PRINTED[name]
    found = read_exact(name, data_dir=published)
    model = LogisticRegression(
        C=1 / regularisation if regularisation else np.inf,
        solver="newton-cholesky" if len(found.classes) == 2 else "lbfgs",
        max_iter=5000,
        tol=1e-6,
    ).fit(found.X_train, found.y_train)
    assert f"{100 * model.score(found.X_train, found.y_train):.2f}" == f"{train:.2f}"
    assert f"{100 * model.score(found.X_test, found.y_test):.2f}" == f"{test:.2f}"


def table(text: str) -> list[list[str]]:
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [row.split(" | ") for row in rows[2:]]


def test_the_page_has_the_accuracies_that_are_checked_here():
    text = PAGE.read_text(encoding="utf-8")
    text = text.split("<!-- printed:start -->")[1].split("<!-- printed:end -->")[0]
    assert table(text) == [
        [name, f"{train:.2f}", f"{train:.2f}", f"{test:.2f}", f"{test:.2f}"]
        for name, (_, train, test) in PRINTED.items()
    ]


@pytest.mark.slow
def test_the_page_has_the_sizes_of_the_ten(published):
    text = PAGE.read_text(encoding="utf-8").split("## The ten tables")[1].split("Section 5.2")[0]
    for name, train, test, columns, features, classes, split in table(text):
        found = read_exact(name, data_dir=published)
        assert found.X_train.shape == (int(train), int(features))
        assert (len(found.y_test), len(found.classes)) == (int(test), int(classes))
        assert found.split.startswith(split) or (split == "random" and "at random" in found.split)
        assert TEN[name][2] == int(columns)


def test_filling_categories_as_the_text_says_cannot_be_what_the_tables_show(published):
    found = read_exact("annealing", follow="text", data_dir=published)
    model = LogisticRegression(C=np.inf, max_iter=5000).fit(found.X_train, found.y_train)
    assert model.score(found.X_train, found.y_train) < 0.95


@pytest.mark.parametrize(
    ("name", "missing"), [("audit-risk", 1), ("cylinder-bands", 999), ("mice-protein", 1396)]
)
def test_missing_cells_are_those_of_the_files(name, missing, published):
    features, _, _ = read_raw(name, published)
    assert int(features.isna().sum().sum()) == missing


@pytest.mark.slow
def test_rows_with_missing_cells_of_adult_are_those_that_its_page_counts(published):
    features, _, fixed = read_raw("adult", published)
    rows = features.isna().any(axis=1)
    assert fixed == 32561
    assert (int(rows[:fixed].sum()), int(rows[fixed:].sum())) == (2399, 1221)


@pytest.mark.parametrize(("name", "repeated"), [("audit-risk", 13), ("dry-bean", 68), ("car", 0)])
def test_repeated_rows_are_kept(name, repeated, published):
    features, target, _ = read_raw(name, published)
    assert int(features.assign(target=target).duplicated().sum()) == repeated


def test_values_are_those_of_scikit_learns_own_copies(published):
    from sklearn import datasets

    for name, theirs in (
        ("breast-cancer-wisconsin", datasets.load_breast_cancer()),
        ("wine", datasets.load_wine()),
    ):
        features, _, _ = read_raw(name, published)
        assert (features.to_numpy() == theirs.data).all()


@ten
def test_a_random_split_is_that_of_scikit_learn_and_an_official_one_is_the_second_file(
    name, published
):
    _, target, fixed = read_raw(name, published)
    if name == "cylinder-bands":
        target = target[:-1]
    for seed in (0, 3):
        found = read_exact(name, seed=seed, data_dir=published)
        if fixed is None:
            train, test = train_test_split(target, test_size=0.2, random_state=seed)
        else:
            train, test = target[:fixed], target[fixed:]
        assert [found.classes[each] for each in found.y_train] == train.tolist()
        assert [found.classes[each] for each in found.y_test] == test.tolist()


@ten
@pytest.mark.parametrize("level", [True, False])
def test_training_rows_do_not_depend_on_test_rows(name, level, published):
    features, _, _ = read_raw(name, published)
    features = features[:2000]
    train, test = train_test_split(np.arange(len(features)), test_size=0.2, random_state=1)
    before = prepare(features, train, missing_is_level=level)
    changed = features.copy()
    for column in features:
        other = 1e6 if features[column].dtype.kind == "f" else "never seen"
        changed.loc[test, column] = other
    after = prepare(changed, train, missing_is_level=level)
    assert (before[train] == after[train]).all()
    assert not (before[test] == after[test]).all()
    assert before[train].mean(0) == pytest.approx(0, abs=1e-9)
    assert before[train].std(0, ddof=1) == pytest.approx(1, abs=1e-9)


def test_preparing_follows_the_text_of_the_section():
    frame = pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0, np.nan, 8.0],
            "colour": pd.Series(["red", "red", "blue", None, "green"], dtype=object),
            "same": [2.0, 2.0, 2.0, 2.0, 5.0],
        }
    )
    train = np.arange(4)
    # Filled: 1 2 3 2, then 8; red red blue red, then green, which no training row has.
    filled = np.array([[1, 0, 1], [2, 0, 1], [3, 1, 0], [2, 0, 1], [8, 0, 0]], float)
    mean, std = filled[:4].mean(0), filled[:4].std(0, ddof=1)
    ours = prepare(frame, train, missing_is_level=False)
    assert ours == pytest.approx((filled - mean) / std, abs=1e-12)
    # Missing as a level comes first: missing, blue, red.
    levels = np.array([[1, 0, 0, 1], [2, 0, 0, 1], [3, 0, 1, 0], [2, 1, 0, 0], [8, 0, 0, 0]], float)
    mean, std = levels[:4].mean(0), levels[:4].std(0, ddof=1)
    ours = prepare(frame, train, missing_is_level=True)
    assert ours == pytest.approx((levels - mean) / std, abs=1e-12)


@ten
def test_reading_twice_gives_the_same_and_another_seed_another_split(name, published):
    one, two = (read_exact(name, data_dir=published) for _ in range(2))
    for part in ("X_train", "y_train", "X_test", "y_test"):
        assert (getattr(one, part) == getattr(two, part)).all()
    other = read_exact(name, seed=1, data_dir=published)
    official = name in ("adult", "annealing")
    assert official == ("official" in one.split)
    assert official == np.array_equal(one.y_train, other.y_train)


# The 121 of UCI


def provenance(published) -> dict[str, tuple[int, ...]]:
    """Rows, features, classes, and rows of training, validation and test in split 0."""
    row = re.compile(r"\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+)/(\d+)/(\d+) \| (4-fold|fixed)")
    text = (published / "PROVENANCE.md").read_text(encoding="utf-8")
    return {
        match[1]: (*(int(match[i]) for i in range(2, 8)), match[8] == "fixed")
        for match in row.finditer(text)
    }


SETS = names("uci121", data_dir=Path("nowhere"))


@pytest.mark.parametrize(
    "sets", [SETS[::20], pytest.param(SETS, marks=pytest.mark.slow)], ids=["six", "all"]
)
def test_the_121_are_as_their_provenance_says(sets, published):
    told = provenance(published)
    for name in sets:
        check_set(name, told[name], published)


def check_set(name, told, published):
    rows, features, classes, train, validation, test, fixed = told
    found = read_uci(name, data_dir=published)
    assert found.X_train.shape == (train, features)
    assert found.X_validation.shape == (validation, features)
    assert found.X_test.shape == (test, features)
    assert train + validation + test == rows
    labels = np.concatenate([found.y_train, found.y_validation, found.y_test])
    assert sorted(set(labels.tolist())) == list(range(classes))
    assert found.classes == tuple(map(str, range(classes)))
    assert ("official" in found.split) == fixed
    for part in (found.X_train, found.X_validation, found.X_test):
        assert np.isfinite(part).all()


def test_every_set_that_is_known_has_the_content_that_is_known(published):
    assert set(provenance(published)) == {
        each.removeprefix("uci121/") for each in TABLE_SETS if each.startswith("uci121/")
    }
    for whole, known in TABLE_SETS.items():
        folder = published / whole
        if whole.startswith("exact/"):
            files = (read_verified(folder, each) for each in known.files)
            assert content_digest(files) == known.data
            continue
        rest = (f"{part}_py.dat.gz" for part in ("labels", "folds", "validation_folds"))
        assert content_digest(read_verified(folder, each) for each in rest) == known.rest
        if known.data:
            features = read_verified(folder, f"{folder.name}_py.dat.gz")
            assert content_digest([features]) == known.data


def test_splits_are_disjoint_and_cover_all_rows_and_test_parts_overlap(published):
    file = published / "uci121" / "iris" / "iris_py.dat.gz"
    rows = np.loadtxt(file, delimiter=",")
    tests = []
    for split in range(4):
        found = read_uci("iris", split=split, data_dir=published)
        parts = np.concatenate([found.X_train, found.X_validation, found.X_test])
        assert sorted(parts.tolist()) == sorted(rows.tolist())
        tests.append({tuple(row) for row in found.X_test.tolist()})
    assert tests[0] & tests[1] and tests[0] != tests[1]


def test_what_the_page_says_of_overlap_and_repeated_rows_is_so(published):
    folds = np.loadtxt(published / "uci121" / "letter" / "folds_py.dat.gz", delimiter=",")
    assert np.mean(folds.sum(1) == 0) == pytest.approx(0.32, abs=0.005)
    assert len(np.unique(folds.sum(1))) == 5
    found = read_uci("titanic", data_dir=published)
    parts = (found.X_train, found.y_train), (found.X_validation, found.y_validation)
    rows = [np.column_stack(each) for each in (*parts, (found.X_test, found.y_test))]
    assert len(np.unique(np.concatenate(rows), axis=0)) == 24


def test_an_official_test_part_is_the_same_in_all_splits(published):
    found = [read_uci("hayes-roth", split=split, data_dir=published) for split in range(4)]
    for other in found[1:]:
        assert (other.X_test == found[0].X_test).all()
    assert any(len(each.y_train) != len(found[0].y_train) for each in found)


def test_standardising_again_is_by_training_rows_alone(published):
    plain = read_uci("abalone", split=2, data_dir=published)
    ours = read_uci("abalone", split=2, standardise=True, data_dir=published)
    mean, std = plain.X_train.mean(0), plain.X_train.std(0, ddof=1)
    for part in ("X_train", "X_validation", "X_test"):
        assert getattr(ours, part) == pytest.approx((getattr(plain, part) - mean) / std, abs=1e-9)
    assert abs(ours.X_train.mean(0)).max() < 1e-9 < abs(plain.X_train.mean(0)).max()


@pytest.mark.parametrize("name", ["annealing", "monks-1", "monks-2", "monks-3", "spectf"])
def test_standardising_again_mends_parts_on_different_scales(name, published):
    plain = read_uci(name, data_dir=published)
    ours = read_uci(name, standardise=True, data_dir=published)
    apart = abs(plain.X_train.mean(0) - plain.X_test.mean(0)).max()
    assert apart > 1 and any("standardise=True" in note for note in plain.notes)
    assert abs(ours.X_train.mean(0)).max() < 1e-9
    assert abs(ours.X_test.mean(0)).max() < 1e-9
    used = ours.X_test.std(0, ddof=1)
    assert np.all((abs(used - 1) < 1e-9) | (used == 0))


def test_the_class_that_a_split_does_not_train_is_noted(published):
    found = read_uci("low-res-spect", split=1, data_dir=published)
    assert set(range(9)) - set(found.y_train.tolist()) == {5}
    assert "class 5 is in no training row of split 1" in found.notes


# What is missing or damaged


def copied(published, whole, tmp_path) -> Path:
    """A data folder of one set."""
    shutil.copytree(published / whole, tmp_path / whole, copy_function=shutil.copyfile)
    for folder in (tmp_path / whole, (tmp_path / whole).parent):
        folder.chmod(0o755)
    lines = (published / "SHA256SUMS").read_text().splitlines(keepends=True)
    (tmp_path / "SHA256SUMS").write_text("".join(each for each in lines if whole in each))
    return tmp_path / whole


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_damaged_file_is_refused_in_one_line(published, tmp_path):
    folder = copied(published, "exact/wine", tmp_path)
    assert len(read_exact("wine", data_dir=tmp_path).y_train) == 142
    damaged = copied(published, "exact/wine", tmp_path / "other")
    content = bytearray((damaged / "wine.data").read_bytes())
    content[100] ^= 1
    (damaged / "wine.data").write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_exact("wine", data_dir=tmp_path / "other")
    assert re.search(r"wine\.data is damaged.*SHA-256.*fetch", one_line(error))
    (folder / "wine.data").unlink()
    with pytest.raises(BadInput, match=r"wine\.data is missing.*fetch it again"):
        read_exact("wine", data_dir=tmp_path)


def test_a_file_without_a_sum_is_refused(published, tmp_path):
    copied(published, "uci121/iris", tmp_path)
    sums = tmp_path / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(each for each in lines if "labels" not in each))
    with pytest.raises(BadInput, match=r"no SHA-256 of .*labels_py\.dat\.gz"):
        read_uci("iris", data_dir=tmp_path)


def test_numbers_of_another_size_are_refused(published, tmp_path):
    folder = copied(published, "uci121/iris", tmp_path)
    packed = gzip.compress(b"1,2,3\n" * 150, mtime=0)
    (folder / "iris_py.dat.gz").write_bytes(packed)
    sums = tmp_path / "SHA256SUMS"
    digest = hashlib.sha256(packed).hexdigest()
    sums.write_text(re.sub(r"\w+(?=  \S+iris_py)", digest, sums.read_text()))
    with pytest.raises(BadInput, match="3 features and 3 classes; should have 150, 4 and 3"):
        read_uci("iris", data_dir=tmp_path)


def test_a_set_that_is_nowhere_says_where_it_was_looked_for_and_how_to_get_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HITRATE_DATA", str(tmp_path / "said"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BadInput) as error:
        read_exact("car")
    text = one_line(error)
    assert str(tmp_path / "said") in text
    assert "HITRATE_DATA" in text
    assert "hitrate_lab.datasets.fetch('exact/car'" in text
    with pytest.raises(BadInput, match=f"uci121/iris is not in {re.escape(str(tmp_path))}:"):
        read_uci("iris", data_dir=tmp_path)


def test_the_folder_is_found_by_its_environment_variable(published, monkeypatch):
    for folder in (published, published.parent if published.name == "tabular" else published):
        monkeypatch.setenv("HITRATE_DATA", str(folder))
        assert len(read_exact("wine").y_test) == 36


def test_miniboone_says_that_it_has_no_features(published, tmp_path):
    copied(published, "uci121/miniboone", tmp_path)
    (tmp_path / "uci121/miniboone/miniboone_py.dat.gz").unlink(missing_ok=True)
    with pytest.raises(BadInput) as error:
        read_uci("miniboone", data_dir=tmp_path)
    assert "no features of miniboone" in one_line(error)


def test_names_and_options_that_are_not_known_are_refused():
    with pytest.raises(BadInput, match="no set 'titanic' in exact: it has 'adult', "):
        read_exact("titanic")
    with pytest.raises(BadInput, match=r"no set '\.\./car' in uci121"):
        read_uci("../car")
    with pytest.raises(BadInput, match="follow='paper'"):
        read_exact("car", follow="paper")
    with pytest.raises(BadInput, match="split=4"):
        read_uci("iris", split=4)
