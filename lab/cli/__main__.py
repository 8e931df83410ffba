"""`python -m lab.cli`."""

from lab.cli.command import main

main()
