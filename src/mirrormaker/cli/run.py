"""`mirrormaker run`: mirror topics until stopped, or until caught up."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

from mirrormaker.errors import MirrorError
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.consistency import settle


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="mirror topics until stopped, or until caught up",
        description="Mirror the chosen topics of one or more source clusters to the target cluster, under the same names.",
        epilog=options.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_options(parser)
    parser.set_defaults(body=body)


def body(args: argparse.Namespace) -> int:
    """Refuse what is wrong before anything is started; then mirror."""
    checked = options.check(args)
    try:
        return _mirror(checked)
    except MirrorError as error:
        if checked.log_format != "json":
            raise
        from mirrormaker.console.display import json_line

        print(json_line(str(error), "error"), file=sys.stderr)
        return error.exit_code


def _mirror(checked: options.RunOptions) -> int:
    logins = checked.login_files
    consumers = [
        source_settings(properties.read(path, "--consumer.config"), logins) for path in checked.consumer_config
    ]
    producer = target_settings(properties.read(checked.producer_config, "--producer.config"), logins)
    run_options, sources, target = settle(checked, consumers, producer)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning:pyspark")
    # Spark is imported only now: a wrong option is answered at once, not after two seconds of loading.
    from mirrormaker.driver.process import MirrorDriver

    async def mirror() -> int:
        return await MirrorDriver(run_options, sources, target).run()

    return asyncio.run(mirror())
