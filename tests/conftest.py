"""For all tests: servers keep nothing on disk, unless the test is about that."""

import os

os.environ["LEFTOFF_DISK"] = "0"
