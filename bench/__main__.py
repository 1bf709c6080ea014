"""`python -m bench`: the command for an interpreter that has no script of it."""

from bench.cli.main import main

if __name__ == "__main__":
    main()
