"""`python -m penstock`: the program."""

from ._program import main

main()
