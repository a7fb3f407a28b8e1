"""`python -m slotlab`."""

from slotlab.lab.cli import main

main()
