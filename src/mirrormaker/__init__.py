"""Kafka's MirrorMaker on Spark: every record once, in order, batches forwarded as they are.

::

    with mirrormaker.mirror(source="source.properties", target="target.properties", topics=["orders"]) as mirror:
        mirror.wait(timeout=60)
    assert mirrormaker.verify("source.properties", "target.properties", ["orders"]).is_same
"""

from mirrormaker.api import Mirror, MirrorStatus, Settings, mirror, offset_map, read, translate, verify
from mirrormaker.errors import MirrorError, SettingError
from mirrormaker.model.offset_translation import Translation
from mirrormaker.verification.verdict import Verdict

__version__ = "0.1.0"
__all__ = [
    "Mirror",
    "MirrorError",
    "MirrorStatus",
    "SettingError",
    "Settings",
    "Translation",
    "Verdict",
    "__version__",
    "mirror",
    "offset_map",
    "read",
    "translate",
    "verify",
]
