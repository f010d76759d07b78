"""How a command ends: 0 done, 1 failed, 2 wrong usage or bad input, 130 stopped by Ctrl-C."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer

from hitrate_lab.bad_input import BadInput, printable

FAILED, BAD_INPUT, STOPPED = 1, 2, 130
P = ParamSpec("P")


def ends_well(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose every error is one line on standard error, and an exit code.

    With HITRATE_TRACEBACK=1 in the environment, what went wrong inside is shown in full.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BadInput as error:
            complain(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt:
            complain("stopped")
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:
            # Whoever read our output has gone, the work is done: nothing is left to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, MemoryError, ImportError) as error:
            _show(error)
            raise typer.Exit(FAILED) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            _show(error)
            complain("this is a fault of hitrate; HITRATE_TRACEBACK=1 shows where it is")
            raise typer.Exit(FAILED) from None

    return run


def complain(message: str) -> None:
    """One line on standard error."""
    print(f"hitrate: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)


def lost_runs(count: int) -> str:
    """What to say of runs whose processes died."""
    counted = "1 run was" if count == 1 else f"{count} runs were"
    return (
        f"{counted} lost with the process, which died; perhaps there was not enough memory. "
        "The same command begins them again"
    )


def _show(error: BaseException) -> None:
    if os.environ.get("HITRATE_TRACEBACK") == "1":
        traceback.print_exception(error)
    complain(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
