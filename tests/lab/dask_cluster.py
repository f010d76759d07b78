"""A Dask cluster whose scheduler and workers are processes of this machine."""

import functools
import json
import subprocess
import sys

from watched import HANGS, environment, wait_until

# Dask would give up what is slow to answer.
PATIENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{HANGS:.0f}s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{HANGS:.0f}s",
}


class Cluster:
    """The address of the scheduler and the workers, all of which it knows, in a `with`."""

    def __init__(self, folder, workers, **variables):
        self.folder, self.count, self.processes = folder, workers, []
        self.environment = environment(**PATIENT, **variables)

    def start(self, *words):
        with self.log(len(self.processes)).open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli." + words[0], *map(str, words[1:])],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
            )
        self.processes.append(process)
        return process

    def log(self, number):
        return self.folder / f"dask-{number}.log"

    def is_registered(self, number):
        return "Registered to" in self.log(number).read_text()

    def __enter__(self):
        common = ["--no-dashboard", "--host", "127.0.0.1"]
        file = self.folder / "scheduler.json"
        options = ["--port", 0, "--scheduler-file", file]
        scheduler = self.start("dask_scheduler", *options, *common)
        address = wait_until(lambda: address_in(file), scheduler)
        # Without a nanny, which would start a killed worker again.
        options = ["--nthreads", 1, "--no-nanny", *common]
        workers = [self.start("dask_worker", address, *options) for _ in range(self.count)]
        for number, worker in enumerate(workers, 1):
            wait_until(functools.partial(self.is_registered, number), worker)
        return address, workers

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
            process.wait()


def address_in(file):
    """The scheduler's address, once its file is whole."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None
