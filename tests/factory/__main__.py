"""`python -m tests.factory FOLDER` makes all small models in a folder, for `LEFTOFF_TEST_MODELS`."""

import os
import sys

from .architectures import RECIPES
from .cache import GIVEN, model_path

os.environ[GIVEN] = sys.argv[1]
for name in RECIPES:
    print(model_path(name))
