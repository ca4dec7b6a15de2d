"""For spark-submit, which wants a file: `spark-submit --master ... bin/mirrormaker.py run --consumer.config ...`."""

import sys

from mirrormaker.cli import main

sys.exit(main())
