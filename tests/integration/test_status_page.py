"""The status page of a running mirror in a real browser, and its metrics compared with a consumer of the target."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.embedded import Cluster
from tests.support.browser import MISSING, Browser
from tests.support.made_up_mirror import MadeUpMirror, ServedStatus
from tests.support.mirror_process import MirrorProcess
from tests.support.promtool import PROMTOOL

PARTITIONS = 4
TOPICS = ("status-page-orders", "status-page-clicks")
SECRET = "not-for-anybodys-eyes"
COMMIT_INTERVAL = 1.0  # seconds, the default

needs_a_browser = pytest.mark.skipif(
    bool(MISSING), reason=f"{' and '.join(MISSING)} not found: install Debian's chromium and chromium-driver"
)


class Writer(threading.Thread):
    """Writes records at a steady rate until `enough` is set."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), linger_ms=5)
        self.enough = threading.Event()
        self.start()

    def run(self) -> None:
        number = 0
        while not self.enough.wait(0.05):
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    self.producer.send(topic, b"%d" % number * 20, b"%d" % number, partition=partition)
                    number += 1
        self.producer.close()


class Mirror:
    """A running mirror, and requests to its status server."""

    def __init__(self, process: MirrorProcess, target: Cluster) -> None:
        self.process = process
        process.wait_for("http://")
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.text)
        assert found
        self.url = found[0]
        self._target = KafkaConsumer(bootstrap_servers=target.bootstrap.split(","))
        self._partitions = [TopicPartition(topic, p) for topic in TOPICS for p in range(PARTITIONS)]

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {SECRET}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            body: bytes = answer.read()
            return body

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def metric(self, name: str) -> dict[tuple[str, int], float]:
        """Return one metric of each partition."""
        text = self.get("metrics").decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
        return {(sample.labels["topic"], int(sample.labels["partition"])): sample.value for sample in samples}

    def on_target(self) -> dict[tuple[str, int], int]:
        """Return the end offset of each partition of the target."""
        return {
            (where.topic, where.partition): end for where, end in self._target.end_offsets(self._partitions).items()
        }


@pytest.fixture(scope="module")
def mirror(source: Cluster, target: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """One mirror for all tests here: two streams, JSON lines, and a steady load."""
    for topic in TOPICS:
        source.create_topic(topic, partitions=PARTITIONS)
    directory = tmp_path_factory.mktemp("status")
    options = ["--whitelist", ",".join(TOPICS), "--num.streams", "2", "--log.format", "json"]
    options += ["--status.address", "127.0.0.1:0", "--status.token", SECRET, "--progress.interval.ms", "1000"]
    with MirrorProcess(directory, source.bootstrap, target.bootstrap, *options, group="status-page") as process:
        writer = Writer(source)
        try:
            mirror = Mirror(process, target)
            process.wait_until(lambda: min(mirror.metric("mirrormaker_records_total").values()) > 0)
            process.wait_until(lambda: len(mirror.metric("mirrormaker_records_total")) == len(TOPICS) * PARTITIONS)
            yield mirror
        finally:
            writer.enough.set()
            writer.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture
def page(mirror: Mirror, browser: Browser) -> Browser:
    """The page, when it shows all partitions."""
    browser.open(f"{mirror.url}?token={SECRET}")
    browser.wait_for("return document.querySelector('#shown').innerText === '8 partitions'")
    return browser


def column(browser: Browser, number: int) -> list[str]:
    """Return the cells of one column, from top to bottom."""
    script = """
        const rows = [...document.querySelectorAll('#body .row')].filter(row => row.style.display !== 'none');
        const top = row => new DOMMatrix(getComputedStyle(row).transform).m42;
        return rows.sort((a, b) => top(a) - top(b)).map(row => row.children[arguments[0]].innerText.trim());
    """
    found: list[str] = browser.run(script, number)
    return found


def at_least(these: Mapping[tuple[str, int], float], those: Mapping[tuple[str, int], float]) -> bool:
    return all(these[key] >= count for key, count in those.items())


# -- metrics


def test_metrics_agree_with_what_a_consumer_of_the_target_counts(mirror: Mirror) -> None:
    counted: list[tuple[float, dict[tuple[str, int], int]]] = []
    deadline = time.monotonic() + 4 * COMMIT_INTERVAL
    while time.monotonic() < deadline:
        counted.append((time.monotonic(), mirror.on_target()))
        asked = time.monotonic()
        shown = mirror.metric("mirrormaker_records_total")
        after = mirror.on_target()
        before = [ends for when, ends in counted if when <= asked - COMMIT_INTERVAL]
        for key, value in shown.items():
            assert value <= after[key], f"{key}: more than there is"
            assert not before or value >= before[-1][key], f"{key}: what was there a commit interval ago"
    assert len(counted) > 5
    assert counted[-1][1] != counted[0][1], "records were arriving"


def test_metrics_parse_clean_and_have_their_names(mirror: Mirror) -> None:
    text = mirror.get("metrics")
    names = {family.name for family in text_string_to_metric_families(text.decode())}
    assert {
        f"mirrormaker_{name}" for name in ("batches", "retries", "resumes", "rebalances", "dropped_records")
    } <= names
    if PROMTOOL is not None:
        checked = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
        )
        assert checked.returncode == 0, checked.stderr.decode()
    lanes = mirror.json("api/partitions")["partitions"]
    assert all(row["lane"] for row in lanes)
    streams = mirror.json("api/status")["streams"]
    assert all(stream["memory"] > 1e7 for stream in streams)


def test_latency_is_from_the_records_timestamp_to_the_targets_answer(mirror: Mirror) -> None:
    p50, p99, p999 = mirror.json("api/status")["latency_ms"]
    assert 0 < p50 <= p99 <= p999
    count = mirror.metric("mirrormaker_latency_seconds_count")
    assert count.keys() == mirror.metric("mirrormaker_records_total").keys()


def test_supervisors_are_answered(mirror: Mirror) -> None:
    assert mirror.get("healthz") == mirror.get("readyz") == b"ok\n"


def test_no_secret_is_shown_anywhere(mirror: Mirror) -> None:
    for path in ("", "api/status", "api/partitions", "api/history", "api/events", "metrics"):
        assert SECRET.encode() not in mirror.get(path), path
    assert SECRET not in mirror.process.text


# -- the page


@needs_a_browser
def test_the_page_shows_the_flow_and_its_partitions_and_complains_about_nothing(page: Browser) -> None:
    text = page.text("body")
    for words in (
        "exactly once, in order",
        "stream 0",
        "stream 1",
        "target",
        "group status-page",
        "8 partitions",
        *TOPICS,
    ):
        assert words in text, words
    assert page.run("return location.search") == "", "the token does not stay in the address"
    assert page.wait_for("return document.querySelectorAll('.chart .line').length") == 5, "charts of the last hour"
    assert page.console_messages() == []


@needs_a_browser
def test_the_page_is_live(page: Browser) -> None:
    before = page.text("#throughput2")
    page.wait_for("return document.querySelector('#throughput2').innerText !== arguments[0]", before, within=10)
    assert page.run("return performance.getEntriesByType('navigation').length") == 1, "without reloading"


@needs_a_browser
def test_columns_sort_both_ways(page: Browser) -> None:
    page.click("[data-key=partition] button")
    assert page.run("return document.querySelector('[data-key=partition]').ariaSort") == "ascending"
    assert column(page, 1) == sorted(column(page, 1), key=int)
    page.click("[data-key=partition] button")
    assert column(page, 1) == sorted(column(page, 1), key=int, reverse=True)
    page.click("[data-key=topic] button")
    assert column(page, 0) == sorted(column(page, 0))


@needs_a_browser
def test_search_and_topics(page: Browser) -> None:
    page.type("#search", "clicks")
    page.wait_for("return document.querySelector('#shown').innerText === '4 of 8 partitions'")
    assert set(column(page, 0)) == {"status-page-clicks"}
    page.type("#search", "no such topic")
    page.wait_for("return document.querySelector('#body').innerText.includes('nothing like that here')")
    page.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    page.click("#by-topic")
    assert sorted(column(page, 0)) == sorted(TOPICS)
    assert set(column(page, 1)) == {"4"}
    page.click("#by-partition")


@needs_a_browser
def test_a_killed_stream_is_an_event_and_counts_go_on(page: Browser, mirror: Mirror) -> None:
    before = mirror.metric("mirrormaker_records_total")
    os.kill(mirror.process.python_workers()[0], signal.SIGKILL)
    page.wait_for("return document.querySelector('#events').innerText.includes('is gone')")
    page.wait_for("return document.querySelector('#events').innerText.includes('is back')", within=40)
    page.wait_for("return document.querySelector('#pill').innerText === 'mirroring'", within=30)
    kinds = {event["kind"] for event in mirror.json("api/events")["events"]}
    assert {"topic", "takeover", "recovered"} <= kinds
    after = mirror.metric("mirrormaker_records_total")
    assert at_least(after, before), "no count goes back"
    starts = [stream["starts"] for stream in mirror.json("api/status")["streams"]]
    assert sum(starts) >= 3
    there = mirror.on_target()
    mirror.process.wait_until(lambda: at_least(mirror.metric("mirrormaker_records_total"), there), 40)
    shown, there = mirror.metric("mirrormaker_records_total"), mirror.on_target()
    assert at_least(there, shown), "nothing is counted twice"


@needs_a_browser
def test_the_page_says_when_the_mirror_is_gone(page: Browser, mirror: Mirror) -> None:
    """Stop the mirror; this is the last test of the page."""
    assert page.run("return document.querySelector('#banner').hidden")
    assert mirror.process.stop() == 0, mirror.process.text
    page.wait_for("return document.querySelector('#banner').innerText.includes('does not answer')")
    assert page.text("#pill") == "gone"
    assert all(topic in page.text("#body") for topic in TOPICS), "what was last known stays"


def test_every_line_of_the_log_is_json(mirror: Mirror) -> None:
    if mirror.process.process is not None and mirror.process.process.poll() is None:
        assert mirror.process.stop() == 0
    lines = [json.loads(line) for line in mirror.process.text.splitlines()]
    assert {"start", "progress", "topic"} <= {line["kind"] for line in lines}
    assert any("guarantee" in line["text"] for line in lines)


# -- many partitions


@pytest.mark.alone
@needs_a_browser
def test_two_thousand_partitions_without_jank(browser: Browser) -> None:
    with ServedStatus(MadeUpMirror(2000)) as shown:
        browser.open(shown.url)
        browser.wait_for("return document.querySelector('#shown').innerText === '2,000 partitions'")
        assert browser.run("return document.querySelectorAll('#body .row').length") < 60, "only the rows in sight exist"
        browser.run("performance.clearMeasures(); document.querySelector('#body').scrollTop = 1000 * 33")
        browser.wait_for("return [...document.querySelectorAll('#body .row')].some(r => r.ariaRowIndex === '1002')")
        frames = browser.run(
            """
            return new Promise(done => {
                const body = document.querySelector('#body'), spent = [];
                const step = () => {
                    const begin = performance.now();
                    body.scrollTop += 200; showRows(); body.offsetHeight;
                    spent.push(performance.now() - begin);
                    spent.length < 60 ? requestAnimationFrame(step) : done(spent);
                };
                step();
            })
            """
        )
        assert sorted(frames)[30] < 16, "a frame's work fits into a frame"
        browser.type("#search", "topic-07")
        browser.wait_for("return document.querySelector('#shown').innerText === '100 of 2,000 partitions'")
        browser.click("[data-key=lag] button")
        browser.wait_for("return performance.getEntriesByName('drawn').length >= 4", within=20)
        drawn = browser.run("return performance.getEntriesByName('drawn').map(entry => entry.duration)")
        assert sorted(drawn)[len(drawn) // 2] < 50, "a second's news is drawn at once"
        assert not [line for line in browser.console_messages() if shown.url in line]


@needs_a_browser
def test_it_fits_a_phone(browser: Browser) -> None:
    with ServedStatus(MadeUpMirror(40)) as shown:
        browser.resize(390, 844)
        try:
            browser.open(shown.url)
            browser.wait_for("return document.querySelector('#shown').innerText === '40 partitions'")
            assert browser.run("return document.documentElement.scrollWidth") <= 390, "nothing to scroll sideways"
        finally:
            browser.resize(1280, 900)


@needs_a_browser
def test_consumer_groups_are_shown_if_some_are_kept_in_step(browser: Browser) -> None:
    made_up = MadeUpMirror(4)
    with ServedStatus(made_up) as shown:
        browser.open(shown.url)
        browser.wait_for("return document.querySelectorAll('#groups-body tr').length === 2")
        assert browser.text("#groups-shown") == "1 of 2 groups ready to fail over"
        first = browser.run("return [...document.querySelector('#groups-body tr').children].map(c => c.innerText)")
        assert first == ["shipping", "topic-01", "owned by the target", "40", "3", "34", "0", "\u2013"]
        assert not [line for line in browser.console_messages() if shown.url in line]
    made_up.groups = None
    with ServedStatus(made_up) as shown:
        browser.open(shown.url)
        browser.wait_for("return document.querySelector('#shown').innerText === '4 partitions'")
        assert browser.run("return document.querySelector('#groups').hidden")
