"""Hosts are installed by `make test-hosts`; what is not there is skipped by name."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    """Hosts warn about themselves, and write into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
