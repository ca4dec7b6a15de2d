"""Java's .properties files, compared with java.util.Properties itself if there is a JDK."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrormaker.errors import SettingError
from mirrormaker.settings.clients import target_settings
from mirrormaker.settings.properties import Property, parse, read


def pairs(text: str) -> dict[str, str]:
    return {p.key: p.value for p in parse(text, "x.properties")}


# -- by example


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a  =  b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("  a=b", {"a": "b"}),
        ("\t\fa=b", {"a": "b"}),
        ("a=b  ", {"a": "b  "}),  # blanks at the end belong to the value
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=b=c", {"a": "b=c"}),
        ("sasl.jaas.config=x required user=\"me\";", {"sasl.jaas.config": "x required user=\"me\";"}),
    ],
)  # fmt: skip
def test_key_and_value_are_separated_as_java_does_it(text: str, found: dict[str, str]) -> None:
    assert pairs(text) == found


@pytest.mark.parametrize("text", ["", "\n\n", "# a=b", "! a=b", "   # a=b", " \t\f\n", "#a=b\\\n#c=d"])
def test_comments_and_blank_lines_are_nothing(text: str) -> None:
    assert pairs(text) == {}


def test_a_comment_does_not_go_on_in_the_next_line() -> None:
    assert pairs("# a \\\nb=c") == {"b": "c"}


def test_a_mark_in_the_middle_of_a_line_is_no_comment() -> None:
    assert pairs("a=b # c\nd#=e!") == {"a": "b # c", "d#": "e!"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_on_any_system(end: str) -> None:
    assert pairs(end.join(["a=1", "", "b=2\\", "  3", "c=4", ""])) == {"a": "1", "b": "23", "c": "4"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=b\\\nc", "bc"),
        ("a=b\\\n   c", "bc"),
        ("a=b \\\n   c", "b c"),
        ("a=b\\\\\nc=d", "b\\"),  # an escaped backslash continues nothing
        ("a=b\\\\\\\nc", "b\\c"),
        ("a=b\\\n\\\nc", "bc"),
        ("a=b\\\n#c", "b#c"),  # not a comment: it is still the same line
        ("a=b\\\n\nc=d", "b"),
        ("a=b\\", "b"),
        ("a\\\n=b", "b"),
        ("a=\\\n b", "b"),
    ],
)
def test_a_backslash_at_the_end_continues_the_line(text: str, value: str) -> None:
    assert pairs(text)["a"] == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"a\=b=c", {"a=b": "c"}),
        (r"a\:b=c", {"a:b": "c"}),
        (r"a\ b=c", {"a b": "c"}),
        (r"\#a=b", {"#a": "b"}),
        (r"\!a=b", {"!a": "b"}),
        (r"a=\ b", {"a": " b"}),
        (r"a=\t\n\r\f", {"a": "\t\n\r\f"}),
        (r"a=\b\z\"", {"a": 'bz"'}),
        (r"a=c:\\dir\\file", {"a": "c:\\dir\\file"}),
        (r"a=c:\dir", {"a": "c:dir"}),  # what people write, and what they get, in Java too
        (r"a=\u00e4\u20AC", {"a": "ä€"}),
        (r"\u0061=b", {"a": "b"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
    ],
)
def test_escapes_mean_what_they_mean_in_java(text: str, found: dict[str, str]) -> None:
    assert pairs(text) == found


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u", r"a=\uzzzz", r"a=\u12 4", "b=1\n" + r"\u123=b"])
def test_half_an_escape_is_refused_with_its_place(text: str) -> None:
    line = text.count("\n") + 1
    with pytest.raises(SettingError, match=rf"x\.properties, line {line}: \\u must be followed by four hex"):
        pairs(text)


def test_the_last_line_of_a_key_counts_and_each_knows_its_place() -> None:
    text = "# first\n\na=1\nb=\\\n 2\na=3\n"
    assert list(parse(text)) == [Property("a", "1", 3), Property("b", "2", 4), Property("a", "3", 6)]
    assert pairs(text) == {"a": "3", "b": "2"}


# -- files


def test_a_file_is_latin_1_as_in_java(tmp_path: Path) -> None:
    path = tmp_path / "a.properties"
    path.write_bytes(b"a=\xe4\nb=1\n")
    found = read(str(path), "--consumer.config")
    assert found["a"].value == "ä"
    assert found.where("b") == f"{path}, line 2"
    assert found.where("c") == str(path)


def test_a_file_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--producer\.config .*none\.properties: no such file or directory"):
        read(str(tmp_path / "none.properties"), "--producer.config")
    with pytest.raises(SettingError, match="is a directory"):
        read(str(tmp_path), "--producer.config")


def test_a_name_that_no_file_can_have_is_refused_and_not_a_crash(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="this cannot be the name of a file"):
        read("a\0b", "--producer.config")
    file = tmp_path / "p.properties"
    file.write_text("client.id=${file:/a\\u0000b:key}\n")
    with pytest.raises(SettingError, match=r"line 1: client\.id: .*this cannot be the name of a file"):
        read(str(file))
    for line in ("ssl.truststore.location=/a\\u0000b", "ssl.keystore.location=/a\\u0000b"):
        file.write_text(f"bootstrap.servers=a:1\nsecurity.protocol=SSL\n{line}\n")
        with pytest.raises(SettingError, match=r"line 3: .*this cannot be the name of a file"):
            target_settings(read(str(file)))


@pytest.mark.parametrize("content", [b"\x7fELF\2\1\1", b"\xca\xfe\xba\xbe\0\0", b"a=b\0"])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keystore.jks"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=r"keystore\.jks: this is not a properties file"):
        read(str(path), "--consumer.config")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# bootstrap.servers=here\n"])
def test_a_file_without_a_setting_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.properties"
    path.write_bytes(content)
    with pytest.raises(SettingError, match="there is no setting in this file"):
        read(str(path), "--consumer.config")


# -- compared with Java


@pytest.fixture(scope="module")
def java() -> Iterator[subprocess.Popen[bytes]]:
    """One JVM that reads all texts of this module."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if command is None:
        pytest.skip("no java on the PATH")
    with tempfile.TemporaryFile() as errors:
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
        process = subprocess.Popen(
            [command, *flags, str(Path(__file__).with_name("Probe.java"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        with process:
            try:
                ask(process, "a=b")
            except (OSError, struct.error):
                process.kill()
                errors.seek(0)
                pytest.skip(f"this java runs no source files: {errors.read().decode(errors='replace')[:200]}")
            yield process
            assert process.stdin is not None
            process.stdin.close()


def ask(process: subprocess.Popen[bytes], text: str) -> dict[str, str] | None:
    """Return what java.util.Properties reads from a text; None if it refuses the text."""
    assert process.stdin is not None
    assert process.stdout is not None
    data = text.encode("latin-1")
    process.stdin.write(struct.pack(">i", len(data)) + data)
    process.stdin.flush()
    count = _int(process.stdout)
    return None if count < 0 else {_text(process.stdout): _text(process.stdout) for _ in range(count)}


def _int(stream: IO[bytes]) -> int:
    number: int = struct.unpack(">i", stream.read(4))[0]
    return number


def _text(stream: IO[bytes]) -> str:
    return stream.read(_int(stream)).decode("utf-16-be", "surrogatepass")


pieces = st.sampled_from(
    ["a", "key", "\\", "\\", "\\\n", "\\\r\n", "\n", "\n", "\r", "\r\n", "=", "=", ":", " ", "  ", "\t", "\f", "#", "!",
     "\\u00e4", "\\u20ac", "\\ud83d\\ude00", "\\u12", "\\n", "\\t", "\xe4", "\x85", "\x0b", "value"]
)  # fmt: skip
texts = st.lists(pieces, max_size=25).map("".join) | st.text(st.characters(max_codepoint=255), max_size=30)


@settings(max_examples=300)
@given(text=texts)
@example(text="a=b\\\n\n c=d")
@example(text="a\\\r\n \t b = c\\\r d")
@example(text="\\")
@example(text="\\\n")
@example(text="\\\n#a=b")
@example(text="\\\n\n#a=b")
@example(text="\\\\ud83d\\ude00")
def test_every_text_means_what_it_means_to_java(java: subprocess.Popen[bytes], text: str) -> None:
    theirs = ask(java, text)
    if theirs is None:
        with pytest.raises(SettingError):
            pairs(text)
    else:
        assert pairs(text) == theirs
