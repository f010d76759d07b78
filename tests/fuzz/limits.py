"""Limits that the system keeps for a process, from case to case."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Limits:
    """What a case may take."""

    cpu_seconds: int
    mebibytes: int
    wall_seconds: int


def begin(limits: Limits) -> None:
    """Let this process have so much more of CPU time and memory, and no more.

    The system ends it by SIGXCPU, and refuses memory. CPU time does not depend on what else runs.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + limits.cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    now = _of_status("VmSize")
    # Room beside the limit: addresses are not memory, and that is what the peak is held to.
    if now is not None:
        most = int((now + 1.25 * limits.mebibytes) * MIB)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def forget_peak() -> float:
    """Begin to measure the peak anew; MiB that there are now."""
    if CLEAR.exists():
        CLEAR.write_text("5")
    return peak()


def peak() -> float:
    """The most memory (MiB) of this process, since the last `forget_peak` where that is known."""
    found = _of_status("VmHWM")
    if found is not None:
        return found
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MIB if sys.platform == "darwin" else most / 1024


def cpu_seconds() -> float:
    """CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_seconds_of(pid: int) -> float | None:
    """CPU time of another process, in ticks' precision; None where the system does not say."""
    try:
        # The name in brackets may have blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _of_status(name: str) -> float | None:
    """MiB of a line of /proc/self/status."""
    if not STATUS.exists():
        return None
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return None
