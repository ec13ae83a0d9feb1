"""Optional packages: imported where they are needed, and named where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from leftoff.setting import SettingError


@contextmanager
def importing(extra: str, what: str) -> Iterator[None]:
    """Runs imports that `what` needs: if one fails, says how to install it."""
    try:
        yield
    except ImportError as error:
        raise SettingError(f"{what} takes what `pip install 'leftoff[{extra}]'` installs ({error})") from error
