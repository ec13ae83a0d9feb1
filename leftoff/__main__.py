"""`python -m leftoff` is `leftoff`."""

import sys


def main() -> int:
    """Runs the `leftoff` command; returns its exit code."""
    try:
        from leftoff.cli.main import main as run  # noqa: PLC0415  # Ctrl-C may come before it is there
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
