from pathlib import Path

import pytest

from hitrate_lab.toy import studies


@pytest.fixture(scope="session")
def results():
    """The toy studies of all losses, half a minute's work."""
    return studies.run()


@pytest.fixture(scope="session")
def paper_results():
    """The toy studies of the paper's three losses, and of two sigmas."""
    losses = ("cross_entropy", "hinge", "exact")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "CASES", {name: studies.CASES[name] for name in losses})
        patch.setattr(studies, "SIGMAS", (1.0, 0.1))
        return studies.run()


@pytest.fixture(scope="session")
def published(data_folder) -> Path:
    """The folder with both collections of published data sets."""
    for folder in (data_folder, data_folder / "tabular"):
        if (folder / "exact").is_dir() and (folder / "uci121").is_dir():
            return folder
    pytest.skip(f"no published data sets in {data_folder} (set HITRATE_DATA)")
