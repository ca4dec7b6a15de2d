"""`mirrormaker run`: mirror topics until stopped, or until caught up."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import sys

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import MirrorError
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.consistency import combine


def run(args: argparse.Namespace) -> int:
    """Check all settings before anything is started; then mirror."""
    run_options = options.check(args)
    try:
        return _mirror(run_options)
    except MirrorError as error:
        if run_options.log_format != "json":
            raise
        from mirrormaker.console.display import json_line

        print(json_line(str(error), "error"), file=sys.stderr)
        return error.exit_code


def _mirror(run_options: options.RunOptions) -> int:
    logins = run_options.login_files
    sources = [
        source_settings(properties.read(path, "--consumer.config"), logins) for path in run_options.consumer_config
    ]
    target = target_settings(properties.read(run_options.producer_config, "--producer.config"), logins)
    run_options, sources, target = combine(run_options, sources, target)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning:pyspark")
    # Errors in the settings are reported before anything else is imported or started.
    from mirrormaker.spark.session import new_engine

    streams = run_options.num_streams * len(sources)
    engine = new_engine(run_options.spark_master, run_options.spark_conf, streams, run_options.log_file)
    try:
        # The JVM takes longest to start: everything else is imported meanwhile.
        engine.launch_jvm()
        from mirrormaker.driver.process import MirrorDriver

        driver = MirrorDriver(run_options, sources, target, engine=engine)
    except BaseException:
        engine.end()
        shutil.rmtree(engine.directory, ignore_errors=True)
        raise

    # Objects from before this need no second look. With thousands of partitions the usual thresholds of the older
    # generations make the event loop stand still for a tenth of a second; next to nothing here forms cycles. The youngest
    # generation is small: looking at 100,000 new objects takes 40 ms.
    gc.freeze()
    gc.set_threshold(10_000, 500, 100)

    return asyncio.run(driver.run())


COMMAND = Command(
    name="run",
    purpose="mirror topics until stopped, or until caught up",
    usage="--consumer.config FILE --producer.config FILE --whitelist REGEX [OPTION ...]",
    description="Mirror topics of one or more source clusters to the target cluster, under the same names.",
    options=options.OPTIONS,
    examples=(
        Example(
            "Mirror two topics with four streams until Ctrl+C:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist "orders, payments" --num.streams 4',
        ),
        Example(
            "Migrate all topics: mirror up to the source's end offsets, then exit:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --exit.when.caught.up',
        ),
        Example(
            "Show the mirror at work on http://127.0.0.1:8080/:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --status.address 127.0.0.1:8080',
        ),
    ),
    notes="source.properties needs at least bootstrap.servers=HOST:PORT and group.id=NAME; target.properties needs"
    " bootstrap.servers=HOST:PORT. `mirrormaker settings source.properties target.properties` shows what they mean.",
    exit_codes={
        0: "the mirror was stopped, or it has caught up (--exit.when.caught.up)",
        1: "an error; the last line on stderr names it",
    },
    run=run,
)
