"""Runs a function in processes of its own, joined by torch.distributed on the CPU."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Only a guard against waiting for ever: how fast the machine is decides no test.
LONGEST = 3600.0


def run_in_two_processes(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` returns for ranks 0 and 1."""
    return run_in_processes(2, function, *arguments)


def run_in_processes(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` returns for each rank.

    The function must stand at the top level of its module, and what it returns must suit
    torch.save. If one process fails, its traceback is part of the exception raised here.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder) / f"{rank}.pt" for rank in range(count)]
        context = mp.spawn(_process, (function, arguments, results), nprocs=count, join=False)
        try:
            # Returns when one process has ended, raises if it has failed.
            while not context.join():
                pass
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
                process.join()
        return [torch.load(result) for result in results]


def _process(
    rank: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    results: list[Path],
) -> None:
    torch.set_num_threads(1)
    # What torchrun says; hosts ask for it.
    size = str(len(results))
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    os.environ |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "TORCHELASTIC_RUN_ID": "test"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{results[0].with_name('store')}",
        rank=rank,
        world_size=len(results),
        timeout=timedelta(seconds=LONGEST),
    )
    unfinished = results[rank].with_suffix(".unfinished")
    torch.save(function(rank, *arguments), unfinished)
    unfinished.rename(results[rank])
    # Leaving first would cut the connections of the other process.
    while not all(result.exists() for result in results):
        time.sleep(0.01)
    # At once: threads of gloo that outlive the interpreter's end would abort the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
