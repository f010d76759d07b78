"""`python -m hitrate_lab` is the command `hitrate`."""

from hitrate_lab.cli import main

main()
