import os
import signal
import subprocess
import sys
from pathlib import Path

# Before anything counts cores: where tests run side by side, each has one.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

# Some virtual machines say that they have AMX, and end a process that uses it: torch's matrix
# products in bfloat16 do. Then its library has to do without; the processes of tests inherit that.
HALF_PRODUCT = "import torch; x = torch.ones(256, 32, dtype=torch.bfloat16); x @ x.T"
CPU = Path("/proc/cpuinfo")
if "ONEDNN_MAX_CPU_ISA" not in os.environ and CPU.exists() and "amx_tile" in CPU.read_text():
    if subprocess.run([sys.executable, "-c", HALF_PRODUCT]).returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"

# Before anything imports Triton: without a GPU its kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A job in a shell's background ignores Ctrl-C, and so would the processes that tests send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]

# The same examples in every run, and no limit on one example: torch's first call is slow.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile(
    "thorough", parent=hypothesis.settings.get_profile("repeatable"), max_examples=10_000
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = Path(os.environ.get("HITRATE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets: {folder} is not a folder (set HITRATE_DATA)")
    return folder
