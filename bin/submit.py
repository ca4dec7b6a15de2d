"""For spark-submit, which wants a file: `spark-submit --master ... bin/submit.py run --consumer.config ...`."""

import sys

from mirrormaker.cli import main

sys.exit(main())
