"""Whatever a file holds, it becomes a table or one line that says why not."""

from collections import Counter

import numpy as np
import pytest
from fuzz.fuzzed_csv import TARGET, fuzzed_csv

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables import Columns, read_table


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_a_file_becomes_a_table_or_one_line(count, tmp_path):
    outcomes = Counter()
    for seed in range(count):
        data, ending = fuzzed_csv(seed)
        path = tmp_path / f"fuzzed{seed}{ending}"
        path.write_bytes(data)
        try:
            table = read_table(path, TARGET)
            columns = Columns().fit(table.features)
        except BadInput as complaint:
            assert len(str(complaint).splitlines()) == 1 and str(complaint).isprintable(), seed
            outcomes["refused"] += 1
            continue
        x = columns.transform(table.features)
        assert x.shape == (len(table.target), len(columns.get_feature_names_out())), seed
        assert np.isfinite(x).all(), seed
        assert all(len(note.splitlines()) == 1 for note in table.notes), seed
        assert 2 <= len(table.classes) <= len(table.target) / 2, seed
        again = Columns.from_json(columns.to_json()).transform(table.features)
        np.testing.assert_array_equal(again, x)
        outcomes["read"] += 1
    # The files are neither all good nor all bad.
    assert min(outcomes["read"], outcomes["refused"]) >= count / 4


def test_a_seed_gives_the_same_file_again():
    assert [fuzzed_csv(seed) for seed in range(20)] == [fuzzed_csv(seed) for seed in range(20)]
