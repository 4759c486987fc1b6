"""`python -m suture` is the command `suture`."""

from suture.cli.main import main

if __name__ == "__main__":
    main()
