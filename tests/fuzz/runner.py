"""The parent of all workers: it forks them, watches them, and writes down what they find."""

import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fuzz import limits
from fuzz.target import Target, Wrong

# Of what a case wrote, the end that is kept.
TAIL = 2000


@dataclass
class Finding:
    """A case that did not end as it should."""

    seed: int
    kind: str
    detail: str
    output: str = ""
    # Whether it was printed.
    shown: bool = False


@dataclass
class Summary:
    """What came of all cases."""

    target: str
    first_seed: int
    cases: int = 0
    inputs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    peak_mebibytes: float = 0.0
    slowest_cpu_seconds: float = 0.0
    slowest_seed: int | None = None
    wall_seconds: float = 0.0
    stopped: bool = False
    described: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


@dataclass
class Worker:
    """A process, its cases still to come, and the one under way."""

    pid: int
    pipe: int
    folder: Path
    left: deque[int]
    now: int | None = None
    since: float = field(default_factory=time.monotonic)
    rest: bytes = b""
    # When it was last looked at for sleep; unlike any at first.
    cpu: float | None = -1.0


def run(
    target: Target,
    name: str,
    seeds: Iterator[int],
    first_seed: int,
    *,
    jobs: int = 1,
    most_findings: int = 100,
    told: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """Run cases until the seeds end, or there are so many findings.

    Parameters
    ----------
    target : Target
    name : str
    seeds : iterator of int
        May end by the clock.
    first_seed : int
        For the summary.
    jobs : int
        Workers at one time.
    most_findings : int
    told : callable
        Is given the summary now and then.
    """
    summary = Summary(name, first_seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        shared = Path(place, "prepared")
        shared.mkdir()
        _prepared(target, shared)
        target.load(shared)
        summary.described = target.describe()
        begun, asked = time.monotonic(), time.monotonic()
        workers: list[Worker] = []
        with selectors.DefaultSelector() as ready:
            try:
                while True:
                    while len(workers) < jobs and len(summary.findings) < most_findings:
                        chunk = deque(islice(seeds, target.chunk))
                        if not chunk:
                            break
                        workers.append(_forked(target, Path(place), chunk, ready))
                    if not workers:
                        break
                    for key, _ in ready.select(timeout=1.0):
                        worker = key.data
                        if not _heard(worker, summary):
                            ready.unregister(worker.pipe)
                            workers.remove(worker)
                            _buried(worker, summary)
                            _clear(worker.folder)
                            if worker.left and len(summary.findings) < most_findings:
                                workers.append(_forked(target, Path(place), worker.left, ready))
                    _end_sleepers(workers, target)
                    if time.monotonic() - asked > 10:
                        asked, summary.wall_seconds = time.monotonic(), time.monotonic() - begun
                        told(summary)
            except KeyboardInterrupt:
                summary.stopped = True
            finally:
                for worker in workers:
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)
    summary.wall_seconds = time.monotonic() - begun
    summary.findings.sort(key=lambda each: each.seed)
    return summary


def _prepared(target: Target, folder: Path) -> None:
    """`prepare` in a process of its own, whose threads no worker inherits."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            target.prepare(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"{type(target).__name__}.prepare failed")


def _forked(
    target: Target, place: Path, seeds: deque[int], ready: selectors.BaseSelector
) -> Worker:
    """A worker for these cases."""
    folder = Path(tempfile.mkdtemp(dir=place, prefix="case-"))
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(ours)
            _work(target, folder, seeds, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    worker = Worker(pid, ours, folder, seeds)
    ready.register(ours, selectors.EVENT_READ, worker)
    return worker


def _work(target: Target, folder: Path, seeds: deque[int], pipe: int) -> None:
    """What a worker does: a line before each case, and one after it."""
    # A core for every crash would fill the disk, and Ctrl-C is the parent's.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = folder / "output.txt"
    for seed in seeds:
        _clear(folder, itself=False)
        file = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        os.write(pipe, b'{"begins": %d}\n' % seed)
        said = _one_case(target, seed, folder)
        os.write(pipe, json.dumps({"seed": seed, **said}).encode() + b"\n")


def _one_case(target: Target, seed: int, folder: Path) -> dict[str, Any]:
    """Outcome or finding, CPU time and peak of a case."""
    limits.begin(target.limits)
    before = limits.forget_peak() if target.watches_memory else 0.0
    cpu = limits.cpu_seconds()
    said: dict[str, Any]
    try:
        said = {"outcome": target.case(seed, folder)}
    except Wrong as error:
        said = {"kind": "wrong", "detail": str(error)[:TAIL]}
    except MemoryError:
        said = {"kind": "memory", "detail": "MemoryError"}
    except BaseException:
        said = {"kind": "exception", "detail": traceback.format_exc()[-TAIL:]}
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    said["inputs"] = target.inputs
    said["cpu"] = limits.cpu_seconds() - cpu
    said["peak"] = max(0.0, limits.peak() - before) if target.watches_memory else 0.0
    if said["peak"] > target.limits.mebibytes:
        said = {**said, "kind": "memory", "detail": f"{said['peak']:.0f} MiB above the start"}
    return said


def _heard(worker: Worker, summary: Summary) -> bool:
    """Take what a worker says; whether there is more to come."""
    data = os.read(worker.pipe, 1 << 16)
    *lines, worker.rest = (worker.rest + data).split(b"\n")
    for line in lines:
        said = json.loads(line)
        worker.since = time.monotonic()
        if "begins" in said:
            worker.now = worker.left.popleft()
            assert worker.now == said["begins"]
            continue
        worker.now = None
        summary.cases += 1
        summary.inputs += said["inputs"]
        summary.peak_mebibytes = max(summary.peak_mebibytes, said["peak"])
        if said["cpu"] > summary.slowest_cpu_seconds:
            summary.slowest_cpu_seconds, summary.slowest_seed = said["cpu"], said["seed"]
        if "kind" in said:
            summary.findings.append(
                Finding(said["seed"], said["kind"], said["detail"], _tail(worker))
            )
        else:
            words = said["outcome"]
            for word in [words] if isinstance(words, str) else words:
                summary.outcomes[word] = summary.outcomes.get(word, 0) + 1
    return bool(data)


def _buried(worker: Worker, summary: Summary) -> None:
    """Learn how a worker ended; a case that was under way is a finding."""
    os.close(worker.pipe)
    status = os.waitpid(worker.pid, 0)[1]
    if worker.now is None and status == 0:
        return
    seed = worker.now if worker.now is not None else worker.left[0] if worker.left else -1
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    how = signal.Signals(number).name if number else f"exit {os.waitstatus_to_exitcode(status)}"
    kind = {"SIGXCPU": "slow", "SIGALRM": "asleep"}.get(how, "crash")
    summary.cases += 1
    summary.findings.append(Finding(seed, kind, how, _tail(worker)))
    worker.now = None


def _end_sleepers(workers: list[Worker], target: Target) -> None:
    """End what has taken no CPU time for too long: it waits for something.

    What is slow because others run too is left to go on, as its own limit is one of CPU time.
    """
    for worker in workers:
        if time.monotonic() - worker.since > target.limits.wall_seconds:
            now = limits.cpu_seconds_of(worker.pid)
            if now is None or now == worker.cpu:
                os.kill(worker.pid, signal.SIGALRM)
            worker.since, worker.cpu = time.monotonic(), now


def _tail(worker: Worker) -> str:
    try:
        text = (worker.folder / "output.txt").read_bytes()[-TAIL:]
    except OSError:
        return ""
    return text.decode("utf-8", "replace")


def _clear(folder: Path, *, itself: bool = True) -> None:
    """Empty a worker's folder, or take it away."""
    if itself:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
