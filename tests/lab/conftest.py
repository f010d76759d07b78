from pathlib import Path

import pytest

from hitrate_lab.toy import studies


@pytest.fixture(scope="session")
def results():
    return studies.run()


@pytest.fixture(scope="session")
def published(data_folder) -> Path:
    """The folder with both collections of published data sets."""
    for folder in (data_folder, data_folder / "tabular"):
        if (folder / "exact").is_dir() and (folder / "uci121").is_dir():
            return folder
    pytest.skip(f"no published data sets in {data_folder} (set HITRATE_DATA)")
