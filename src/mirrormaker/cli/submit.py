"""`mirrormaker submit`: run the mirror's driver in a cluster, with `spark-submit` and everything that it needs there."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import SettingError, SparkError
from mirrormaker.events.process_events import PackingLibraries
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.command_line import Option, is_given
from mirrormaker.settings.consistency import combine
from mirrormaker.settings.portable import Bundle

_GROUP = "submission"
_OPTIONS = (
    Option(("--name",), "Name of the application in the cluster.", "NAME", "mirrormaker", group=_GROUP),
    Option(
        ("--deploy.mode",),
        "Where the driver runs: cluster (a node chosen by YARN) or client (this machine).",
        "MODE", default_text="cluster for yarn, client for spark://", group=_GROUP,
    ),
    Option(("--wait",), "Wait until the application has ended. The exit code is 1 if it failed.", group=_GROUP),
    Option(
        ("--dry.run",),
        "Start nothing: write the files that would be sent into this new directory, and print the spark-submit line.",
        "DIRECTORY", default_text="the mirror is started", group=_GROUP,
    ),
)  # fmt: skip
# Options of `run` that spark-submit gets, that name files, or that mean nothing on another machine.
_NOT_PASSED_ON = {
    "--spark.master", "--spark.conf", "--log.file", "-D", "--consumer.config", "--producer.config", "--jaas.config",
    "--krb5.config", "--status.token",
}  # fmt: skip
_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_STOPS_WITHIN = 20.0  # seconds for spark-submit to end after a signal


def run(args: argparse.Namespace) -> int:
    """Check everything here, then submit. Return 0 if the application was submitted, or has succeeded (--wait)."""
    run_options = options.check(args)
    if run_options.spark_master is None:
        raise SettingError("--spark.master is missing: yarn, or spark://HOST:PORT", option=True)
    if args.deploy_mode not in (None, "cluster", "client"):
        raise SettingError(f"--deploy.mode {args.deploy_mode}: this must be cluster or client", option=True)
    sources = [
        source_settings(properties.read(path, "--consumer.config"), run_options.login_files)
        for path in run_options.consumer_config
    ]
    target = target_settings(properties.read(run_options.producer_config, "--producer.config"), run_options.login_files)
    run_options, sources, _ = combine(run_options, sources, target)
    # Importing Spark takes two seconds; errors in the settings are reported before that.
    from mirrormaker.spark.masters import master_for
    from mirrormaker.spark.submission import MAIN, MAIN_TEXT, Submission, deploy_mode, shown

    in_cluster = deploy_mode(run_options.spark_master or "", args.deploy_mode)
    _check_files_of_the_node(args, in_cluster)
    master = master_for(run_options.spark_master, run_options.num_streams * len(sources))
    with _directory(args.dry_run) as directory:
        bundle = Bundle(directory / "files")
        bundle.directory.mkdir(mode=0o700)
        arguments = _arguments(args, run_options, bundle, in_cluster)
        (directory / MAIN).write_text(MAIN_TEXT)
        submission = Submission(
            master,
            in_cluster,
            args.name,
            dict(run_options.spark_conf),
            bundle.files if in_cluster else [],
            arguments,
            directory,
            args.wait,
        )
        if submission.packs_libraries:
            print(PackingLibraries().text, file=sys.stderr, flush=True)
        line = submission.line()
        print(shown(line), file=sys.stdout if args.dry_run else sys.stderr, flush=True)
        return 0 if args.dry_run else _submit(line, submission.environment, in_cluster, args.wait)


def _check_files_of_the_node(args: argparse.Namespace, in_cluster: bool) -> None:
    """Refuse files of our own that would be gone with the container."""
    if not in_cluster:
        return
    if args.log_file is not None:
        raise SettingError(
            "--log.file: in the cluster Spark's log is in the container's stderr (yarn logs)", option=True
        )
    gives_up = str(args.abort_on_send_failure).lower() == "false"
    if gives_up and not Path(args.undelivered_file or "").is_absolute():
        raise SettingError(
            "--abort.on.send.failure false: name --undelivered.file with an absolute path, which every node can write"
            " to; the container's own directory is removed at the end",
            option=True,
        )


@contextlib.contextmanager
def _directory(wanted: str | None) -> Iterator[Path]:
    """Yield the directory for the files that are sent: the user's own, or a temporary one that is removed."""
    if wanted is not None:
        path = Path(wanted).absolute()
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise SettingError(f"--dry.run {wanted}: {(error.strerror or str(error)).lower()}", option=True) from None
        yield path
        return
    # Without a handler, SIGTERM would leave the copies of key stores and passwords behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="mirrormaker-submit-") as scratch:
        yield Path(scratch)


def _arguments(
    args: argparse.Namespace, run_options: options.RunOptions, bundle: Bundle, in_cluster: bool
) -> list[str]:
    """Return the command line of `mirrormaker run` on the driver's machine, without secrets."""
    logins, place = run_options.login_files, bundle.directory
    words = ["run"]
    for path in run_options.consumer_config:
        words += ["--consumer.config", bundle.property_file(path, "--consumer.config") if in_cluster else _full(path)]
    path = run_options.producer_config
    words += ["--producer.config", bundle.property_file(path, "--producer.config") if in_cluster else _full(path)]
    if logins.jaas.path:
        words += ["--jaas.config", bundle.login_file(logins.jaas) if in_cluster else _full(logins.jaas.path)]
    if logins.krb5.path:
        named_by = logins.krb5.named_by
        words += ["--krb5.config", bundle.copy(logins.krb5.path, named_by) if in_cluster else _full(logins.krb5.path)]
    if run_options.status is not None and run_options.status.token is not None:
        name = bundle.write("status-token", run_options.status.token.encode())
        words += ["--status.token", f"@{name if in_cluster else place / name}"]
    for option in options.OPTIONS:
        value = getattr(args, option.attribute)
        if option.names[0] in _NOT_PASSED_ON or not (
            value if option.value is None else is_given(args, option.attribute)
        ):
            continue
        words += [option.names[0]] if option.value is None else [option.names[0], str(value)]
    return words


def _full(path: str) -> str:
    return str(Path(path).absolute())


def _submit(line: list[str], environment: dict[str, str], in_cluster: bool, waits: bool) -> int:
    """Run spark-submit; report the application as soon as it has an id."""
    if not in_cluster:
        process = subprocess.Popen(line, env=environment)
        try:
            return 0 if process.wait() == 0 else 1
        finally:
            _end(process)
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    application, last = "", deque[str](maxlen=400)
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            text = raw.decode(errors="replace").rstrip()
            last.append(text)
            found = _APPLICATION.search(text)
            if found and not application and "Submitted application" in text:
                application = found[0]
                _report(application)
        code = process.wait()
    finally:
        _end(process)
    if code == 0:
        if waits:
            print(f"{application} has succeeded", file=sys.stderr)
        return 0
    if application:
        raise SparkError(f"{application} has failed or was killed; see: yarn logs -applicationId {application}")
    raise SparkError(f"spark-submit failed: {_complaint(last)}")


def _report(application: str) -> None:
    print(
        f"submitted as {application}\n"
        f"  its output:  yarn logs -applicationId {application}\n"
        f"  its node:    yarn application -status {application}\n"
        f"  to stop it:  yarn application -kill {application}",
        file=sys.stderr,
        flush=True,
    )


def _complaint(lines: deque[str]) -> str:
    """Return the line that tells most about a failure: the last exception, else the last line."""
    named = [line for line in lines if re.search(r"(Exception|Error)\b", line) and not line.lstrip().startswith("at ")]
    return ((named or list(lines) or ["it printed nothing"])[-1]).strip()[:300]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End spark-submit if it still runs; an application in the cluster goes on."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


COMMAND = Command(
    name="submit",
    purpose="run a mirror with its driver in a cluster (YARN)",
    usage="--spark.master yarn --consumer.config FILE --producer.config FILE --whitelist REGEX [OPTION ...]",
    description="Send a mirror to a cluster with spark-submit: this package, its libraries, the property files, and the"
    " key stores, keytabs and login files that they name. The spark-submit line is printed.",
    options=(*_OPTIONS, *options.OPTIONS),
    examples=(
        Example(
            "Run a mirror on YARN:",
            "%(prog)s --spark.master yarn --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist "orders, payments" --num.streams 4 --spark.conf spark.yarn.queue=mirrors',
        ),
        Example(
            "Show the spark-submit line, and keep the files that it needs:",
            "%(prog)s --dry.run mirror-files --spark.master yarn --consumer.config source.properties \\\n"
            '    --producer.config target.properties --whitelist ".*"',
        ),
    ),
    notes="The options of `mirrormaker run` mean the same. HADOOP_CONF_DIR names the directory with the cluster's"
    " yarn-site.xml. Spark's own cluster manager (spark://) runs no Python driver: there the driver stays on this machine.",
    exit_codes={
        0: "the application was submitted; with --wait or in client mode, it has succeeded",
        1: "an error, or the application has failed; the last line on stderr names it",
    },
    run=run,
)
