"""`python -m leftoff` is `leftoff`."""

import sys

from leftoff.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
