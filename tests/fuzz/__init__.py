"""Programs of hitrate under hostile input, watched by a parent process: `make fuzz` runs them.

To add a target: a module in this folder with a subclass of `Target` (see `target.py`, whose
docstring says what the runner promises and expects), and a line in `TARGETS` below.
tests/fuzz/test_runner.py then runs some of its cases with every change. Cases are named by their
seeds alone:

    make fuzz TARGETS=model_folders MINUTES=10        as many cases as fit
    make fuzz TARGETS=model_folders CASES=10000       so many cases
    make fuzz TARGETS=model_folders CASES=1 SEED=4711 one case again
    make fuzz LONG=1                                  all targets in their long form: hours
"""

# Module and class of each target; a module's name is none of the standard library's.
TARGETS = {
    "bad_files": ("fuzz.bad_files", "BadFiles"),
    "kills": ("fuzz.kills", "Kills"),
    "losses": ("fuzz.losses", "Losses"),
    "model_folders": ("fuzz.model_folders", "ModelFolders"),
    "peaks": ("fuzz.peaks", "Peaks"),
}
