"""How hard Hypothesis tries: enough to find what is wrong, quick enough to run after every edit."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("unit", deadline=None, max_examples=30, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))
