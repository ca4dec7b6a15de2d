"""A mirror that unpacks records is killed again and again; the target holds each record once, in order.

`make faults --quick` kills mirrors that forward whole batches.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from mirrormaker.embedded import Cluster
from tests.support.comparing import assert_mirrored_by_key
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import Writer
from tests.support.reading import read

KILLS = 5


def mirror_and_kill(
    tmp_path: Path, source: Cluster, target: Cluster, writers: list[Writer], *, group: str, consumer: str = ""
) -> None:
    """Start the mirror and kill it at random moments under load; then let it catch up."""
    topics = ",".join(writer.topic for writer in writers)
    options = ("--whitelist", topics, "--num.streams", "2", "--progress.interval.ms", "300")
    random.seed(KILLS)
    addresses = (source.bootstrap, target.bootstrap)
    for _ in range(KILLS):
        with MirrorProcess(tmp_path, *addresses, *options, group=group, consumer=consumer) as mirror:
            mirror.wait_for("lag", 60)  # in the first line of progress: the streams work
            mirror.output.write_text("")
            time.sleep(random.uniform(0.1, 2.0))
            family = mirror.descendants()
            mirror.kill()
            wait_until_gone(family)
    for writer in writers:
        writer.stop()
    last = MirrorProcess(tmp_path, *addresses, *options, "--exit.when.caught.up", group=group, consumer=consumer)
    with last:
        assert last.wait() == 0, last.text


def test_a_mirror_killed_five_times_sends_each_record_once_where_records_are_unpacked(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Mirror to fewer partitions, to more, with the broker's timestamps, and only committed transactions."""
    fewer, more = f"{topic_name}.fewer", f"{topic_name}.more"
    stamped, committed = f"{topic_name}.stamped", f"{topic_name}.committed"
    for topic, on_source, on_target in ((fewer, 8, 3), (more, 3, 8), (stamped, 2, 2), (committed, 2, 3)):
        config = {"message.timestamp.type": "LogAppendTime"} if topic == stamped else {}
        source.create_topic(topic, partitions=on_source, config=config)
        target.create_topic(topic, partitions=on_target)
    writers = [
        Writer(source, fewer, 8, 1000), Writer(source, more, 3, 500, "zstd"), Writer(source, stamped, 2, 200, None),
        Writer(source, committed, 2, 400, "gzip", transactions=True),
    ]  # fmt: skip
    consumer = "isolation.level=read_committed\n"
    mirror_and_kill(tmp_path, source, target, writers, group=topic_name, consumer=consumer)
    for writer in writers:
        written, mirrored = read(source, writer.topic, committed=True), read(target, writer.topic)
        assert sum(map(len, written.values())) == writer.count
        if writer.topic == stamped:
            contents = {p: [row.content for row in rows] for p, rows in mirrored.items()}
            assert contents == {p: [row.content for row in rows] for p, rows in written.items()}
        else:
            assert_mirrored_by_key(written, mirrored)
