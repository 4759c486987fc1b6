"""The command `suture`, and `python -m suture`: the door of `cli`. Where only the engine is installed it says how to get the rest."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from suture.cli.main import main as run  # noqa: PLC0415 (what it imports may be missing: that is this door's duty)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("suture"):
            raise
        sys.exit(f"The command needs more than the engine, {error.name} is not installed: pip install 'suture[all]'")
    run()


if __name__ == "__main__":
    main()
