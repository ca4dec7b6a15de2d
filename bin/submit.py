"""Start mirrormaker with spark-submit, which needs a file: `spark-submit --master URL bin/submit.py run OPTIONS`."""

import sys

from mirrormaker.cli import main

sys.exit(main())
