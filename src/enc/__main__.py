"""`python -m enc`: the command line."""

from enc.cli import main

main()
