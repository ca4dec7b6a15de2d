"""Run `mirrormaker` as `python -m mirrormaker.cli`."""

from mirrormaker.cli import main

main()
