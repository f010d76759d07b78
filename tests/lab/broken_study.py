"""A study's file with one thing wrong."""

import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.studies import read_study


def complaint_of(file, folder, old, new, use=lambda study: None):
    """What is said of a copy of a file in which a text is replaced, when it is read and used."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    path = folder / file.name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        use(read_study(path))
    said = str(caught.value)
    assert said.startswith(str(path)) and "\n" not in said
    return said
