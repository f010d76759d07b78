"""Processes that tests start, and waiting for what they do: for an event, never for a time."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Seconds after which something hangs: far more than a busy machine needs, and less than for ever.
HANGS = 1800.0
# The variable that names a folder of tickets.
TICKETS = "TEST_TICKETS"


def environment(**more):
    """Variables with which another process imports what this one does."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    return {**os.environ, "PYTHONPATH": paths, **{name: str(value) for name, value in more.items()}}


class Watched(subprocess.Popen):
    """A process whose lines are read one by one, killed at the end of a `with`.

    What it complains of is kept in a file: a pipe that nobody reads would fill and stop it.
    """

    def __init__(self, words, **options):
        self._complaints = tempfile.TemporaryFile()
        pipes = {"stdout": subprocess.PIPE, "stderr": self._complaints, "text": True}
        super().__init__([*map(str, words)], **pipes, **options)

    def __exit__(self, *error):
        self.kill()
        super().__exit__(*error)
        self._complaints.close()

    def lines(self, kind, count=1):
        """What it says, until so many lines have begun with `kind`."""
        found = []
        while count:
            found.append(line := self.stdout.readline())
            assert line.endswith("\n"), self.complaints()
            count -= line.startswith(kind)
        return found

    def rest(self):
        """All else that it says until it ends.

        Not `communicate`, which does not know what was read ahead for the lines before.
        """
        said = self.stdout.read()
        self.wait(HANGS)
        return said

    def complaints(self):
        # Without a move in the file, which would move the process too.
        size = os.fstat(self._complaints.fileno()).st_size
        return os.pread(self._complaints.fileno(), size, 0).decode()


def wait_until(happened, process=None):
    """What `happened()` finds, as soon as that is something; `process` must not end before."""
    hangs = time.monotonic() + HANGS
    while not (found := happened()):
        assert process is None or process.poll() is None, "it ended too early"
        assert time.monotonic() < hangs, "it hangs"
        time.sleep(0.02)
    return found


def workers_of(pid):
    """Processes of joblib whose parent this is."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in listing.splitlines())
    return [int(row[0]) for row in rows if int(row[1]) == pid and "popen_loky" in row[-1]]


def is_running(pid):
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return bool(listing) and not listing.startswith("Z")


def wait_for_the_end_of(pids):
    """Wait until none of these processes runs."""
    wait_until(lambda: not any(map(is_running, pids)))


class Tickets:
    """A folder of files: a run takes one before it works, and waits where there is none.

    So it is known how many runs are done, however fast they are, and that others are under way.
    """

    def __init__(self, folder, count=0):
        self.folder, self._given = Path(folder), 0
        self.folder.mkdir()
        self.give(count)

    def give(self, count):
        for number in range(self._given, self._given + count):
            (self.folder / str(number)).touch()
        self._given += count

    def no_more_needed(self):
        # By another name first: who finds it empty on its way to removal would wait for nothing.
        shutil.rmtree(self.folder.rename(f"{self.folder}-old"))


def take_ticket():
    """Take one, where processes need them; called by runs."""
    folder = Path(os.environ.get(TICKETS, "nowhere"))
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            for ticket in folder.iterdir():
                # Only one process can do this.
                ticket.unlink()
                return
        time.sleep(0.01)
