"""`python -m provisioner.cli`."""

from provisioner.cli.main import main

main()
