import pytest

from hitrate_lab.toy import studies


@pytest.fixture(scope="session")
def results():
    return studies.run()
