"""What results were made with, when and where: versions, commit, time, processor."""

from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

# What results depend on.
PACKAGES = ("hitrate", "torch", "scikit-learn", "numpy", "xgboost", "lightgbm")


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of Python and of what results depend on; in a checkout of hitrate its commit too.

    Parameters
    ----------
    packages : iterable of str
        Beside `PACKAGES`.
    """
    found = {"python": platform.python_version()}
    for name in dict.fromkeys([*PACKAGES, *packages]):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    if "hitrate" not in found:
        import hitrate

        found["hitrate"] = hitrate.__version__
    if commit := commit_of(Path(__file__).resolve().parents[3]):
        found["commit"] = commit
    return found


@functools.cache
def commit_of(root: Path) -> str | None:
    """The commit that a repository's folder is at, once per process; None if it is no such folder.

    Parameters
    ----------
    root : Path
        Only its own repository counts: an installed hitrate may lie inside of someone else's.

    Returns
    -------
    str or None
        Twelve digits, followed by "+changes" if the code in ``src`` is not that of the commit.
    """
    if not (root / ".git").exists():
        return None
    # Without locks: others may be at work in the repository.
    git = ["git", "-C", str(root), "--no-optional-locks"]
    found = []
    for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "src"]):
        try:
            ended = subprocess.run([*git, *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return None
        if ended.returncode:
            return None
        found.append(ended.stdout.strip())
    commit, changes = found
    return f"{commit}+changes" if changes else commit


def now() -> str:
    """The time in UTC, as in 2026-01-31T12:00:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
