import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from networks_to_train import CASES

PROGRAM = Path(__file__).with_name("networks_to_train.py")


def started(case, folder):
    command = [sys.executable, str(PROGRAM), case, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(case, folder):
    with started(case, folder) as process:
        process.stdout.read()
    assert process.returncode == 0


def found(folder):
    return torch.load(folder / "weights.pt", weights_only=True)


def killed_at(case, folder, moments):
    """Start it again and again, killed behind a step that was told."""
    for moment in moments:
        with started(case, folder) as process:
            for _ in range(moment):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)


def test_a_killed_training_ends_with_the_same_weights(tmp_path, case="asam"):
    finished(case, tmp_path / "whole")
    generator = random.Random(0)
    killed_at(case, tmp_path / "killed", [generator.randint(1, 6) for _ in range(3)])
    finished(case, tmp_path / "killed")
    assert torch.equal(found(tmp_path / "killed")[0], found(tmp_path / "whole")[0])


@pytest.mark.slow
def test_killed_at_twenty_moments_it_ends_with_the_same_weights(tmp_path, case="every_option"):
    finished(case, tmp_path / "whole")
    generator = random.Random(1)
    killed_at(case, tmp_path / "killed", [generator.randint(1, 4) for _ in range(20)])
    finished(case, tmp_path / "killed")
    assert torch.equal(found(tmp_path / "killed")[0], found(tmp_path / "whole")[0])


def torchrun(case, folder, *arguments, processes=2):
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=2"),
        *(f"--nproc-per-node={processes}", str(PROGRAM), case, str(folder), *arguments),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    return found(folder)


@pytest.mark.parametrize("case", ["annealed", "every_option"])
def test_two_processes_train_what_one_does_on_the_joined_batch(case, tmp_path):
    together, accuracy = torchrun(case, tmp_path / "two")
    # A step that does not come: a plain network, as in the two.
    alone, alone_accuracy = torchrun(case, tmp_path / "one", "-1", processes=1)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert accuracy == alone_accuracy


def test_a_killed_process_goes_on_from_the_checkpoint(tmp_path):
    whole, _ = torchrun("annealed", tmp_path / "whole")
    killed, _ = torchrun("annealed", tmp_path / "killed", "8")
    assert (tmp_path / "killed" / "died").exists()
    assert CASES["annealed"].epochs == 3
    assert torch.equal(killed, whole)
