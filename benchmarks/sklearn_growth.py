"""Fit time and peak memory of `AccuracyClassifier` over the number of rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

ROWS = (10_000, 100_000, 1_000_000)
FEATURES, CLASSES = 50, 10

# In a process of its own, so that the peak is this fit's. The fit before warms up what stays.
PROGRAM = """
import json, re, sys, time, warnings
from pathlib import Path
import numpy as np
from hitrate.sklearn import AccuracyClassifier
warnings.simplefilter("ignore")
rows, features, classes, auto = map(int, sys.argv[1:])

def peak():
    # Of this process; getrusage would begin with the parent's.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])

def table(rows, seed):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, features), dtype=np.float32)
    centers = np.random.default_rng(0).standard_normal((features, classes), dtype=np.float32)
    y = np.empty(rows, dtype=np.int64)
    for start in range(0, rows, 10_000):
        part = slice(start, start + 10_000)
        noise = 4 * random.gumbel(size=(len(x[part]), classes))
        y[part] = (x[part] @ centers + noise).argmax(1)
    return x, y

settings = {} if auto else dict(l2=1 / rows, sigma=0.25, margin=None, polish=True)
model = AccuracyClassifier(**settings, random_state=0)
model.fit(*table(2000, 1))
x, y = table(rows, 0)
before = peak()
begin = time.perf_counter()
model.fit(x, y)
seconds = time.perf_counter() - begin
data = x.nbytes + y.nbytes
more = max(peak() - before, 0)
print(json.dumps(dict(rows=rows, seconds=seconds, data_bytes=data, data_and_peak_bytes=data + more,
                      memory_ratio=(data + more) / data, train_accuracy=model.score(x, y))))
"""


def growth() -> dict[str, Any]:
    """Seconds and memory for ten times the rows, and again."""
    result: dict[str, Any] = {
        "what": f"synthetic float32 rows with {FEATURES} features and {CLASSES} classes; memory is "
        "the data and the fit's peak over it, as a ratio to the data",
        "n": 1,
    }
    for key, auto in (("l2=1/N, sigma=0.25", 0), ("all defaults", 1)):
        rows = []
        for count in ROWS:
            command = [sys.executable, "-c", PROGRAM, str(count), str(FEATURES), str(CLASSES)]
            run = subprocess.run([*command, str(auto)], capture_output=True, text=True)
            if run.returncode:
                raise RuntimeError(run.stderr)
            rows.append(json.loads(run.stdout))
            print(key, rows[-1], flush=True)
        seconds = np.array([row["seconds"] for row in rows])
        result[key] = {
            "rows": rows,
            "times_longer_for_ten_times_the_rows": [
                round(float(t), 2) for t in seconds[1:] / seconds[:-1]
            ],
        }
    return result
