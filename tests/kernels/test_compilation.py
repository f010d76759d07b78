"""The kernels compile for a GPU, whether or not there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
def test_every_kernel_and_link_compiles_for_a_gpu(tmp_path):
    script = Path(__file__).with_name("compile_for_gpu.py")
    settings = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    kernels = {line.split()[0] for line in done.stdout.splitlines()}
    assert kernels == {
        "all_classes_kernel",
        "compress",
        "correct_kernel",
        "expand",
        "few_classes_kernel",
        "integrate_kept",
        "logistic_kernel",
        "per_row_kernel",
        "pull_kernel",
        "scale_kernel",
        "softmax_gradient",
        "softmax_value",
        "statistics_kernel",
        "times_kernel",
        "top_k_kernel",
    }
