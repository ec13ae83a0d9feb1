"""Tiny random models of many architectures for the tests: real files with a real tokenizer and chat template.

Made from metadata in a fraction of a second and kept between runs. Their replies are words without sense, but
they depend on what was read long before, so that a test on a wrong state fails.
"""

from .architectures import ARCHITECTURES, ENCODERS, MTP
from .cache import model_path
from .others import OTHERS
from .parts import Scale
from .vocabulary import small_vocabulary

__all__ = ["ARCHITECTURES", "ENCODERS", "MTP", "OTHERS", "Scale", "model_path", "small_vocabulary"]
