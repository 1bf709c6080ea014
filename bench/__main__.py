"""`python -m bench`: the command, for an interpreter without the console script."""

from bench.cli.main import main

if __name__ == "__main__":
    main()
