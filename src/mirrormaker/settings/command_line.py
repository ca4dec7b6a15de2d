"""Command line options as rows of a table, and the parser that is built from them.

Parsing, `--help` and the reference pages in docs/ use the same rows.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from mirrormaker import __version__
from mirrormaker.errors import SettingError


@dataclass(frozen=True)
class Option:
    """One option: its spellings, its value and its help text. A name without dashes is a positional argument."""

    names: tuple[str, ...]
    help: str
    value: str | None = None  # the placeholder for the value in the help text; None: the option is a flag
    default: Any = None
    default_text: str = ""  # describes a default that is not just a value
    type: Callable[[str], Any] = str
    bare_value: Any = None  # the value if the option is given without one; None: a value is required
    repeated: bool = False
    required: bool = False  # only for the help text; the command checks it, with a better message than argparse's
    group: str = ""  # the heading in the help text
    dest: str = ""  # the attribute of the parsed arguments; by default made from the first name

    @property
    def attribute(self) -> str:
        """Return the attribute of the parsed arguments that holds the value."""
        return self.dest or self.names[0].lstrip("-").replace(".", "_").replace("-", "_")

    @property
    def is_positional(self) -> bool:
        """Return True for an argument without a name on the command line."""
        return not self.names[0].startswith("-")

    @property
    def value_text(self) -> str:
        """Return the placeholder for the value, in brackets if it can be left out; "" for a flag."""
        return f"[{self.value}]" if self.bare_value is not None else self.value or ""

    @property
    def full_help(self) -> str:
        """Return the help text with the default."""
        if self.required:
            return f"{self.help} Required."
        default = self.default_text or ("" if self.default is None else str(self.default))
        return f"{self.help} Default: {default}." if default else self.help


class Once(argparse.Action):
    """Refuses an option that is given twice, so that nobody has to guess which value counts."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the value."""
        given: set[str] = namespace.__dict__.setdefault("_given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, "given more than once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def is_given(args: argparse.Namespace, attribute: str) -> bool:
    """Return True if the command line has the option, even with its default value."""
    return attribute in getattr(args, "_given", ())


class CommandLineParser(argparse.ArgumentParser):
    """An argparse parser that raises SettingError, takes no abbreviations, and reports unknown options itself."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **arguments,
        )
        self._known = ["--help", "--version"]
        self.add_argument("-h", "--help", action="help", help="Show this text and exit.")
        version = f"mirrormaker {__version__}"
        self.add_argument("--version", action="version", version=version, help="Show the version and exit.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse unknown arguments here: argparse would report those of a command for the main program."""
        try:
            parsed, unknown = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            self.error(_in_our_words(error))
        if unknown:
            self.error(self._unknown(unknown))
        return parsed, unknown

    def _unknown(self, words: list[str]) -> str:
        """Return the complaint about the first unknown option. Its value is not shown: it can be a secret."""
        name = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        if not name:
            return f"{words[0]}: this belongs to no option"
        similar = difflib.get_close_matches(name, self._known, 1)
        return f"{name}: there is no such option" + (f"; did you mean {similar[0]}?" if similar else "")

    def error(self, message: str) -> NoReturn:
        """Raise argparse's complaint."""
        raise SettingError(message, option=True)

    def add_options(self, options: Iterable[Option]) -> None:
        """Add the rows of a table, each under the heading of its group."""
        groups: dict[str, Any] = {"": self}
        for option in options:
            if option.group not in groups:
                groups[option.group] = self.add_argument_group(option.group)
            groups[option.group].add_argument(*option.names, **_argparse_keywords(option))
            self._known += () if option.is_positional else option.names


def _in_our_words(error: argparse.ArgumentError) -> str:
    if isinstance(error.__context__, argparse.ArgumentTypeError):
        # The text begins with the value.
        return f"{error.argument_name} {error.message}"
    text = "a value is missing" if error.message == "expected one argument" else error.message
    return f"{error.argument_name}: {text}"


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: this must be a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: this must be a number") from None


_CHECKED_TYPES: dict[Callable[[str], Any], Callable[[str], Any]] = {int: _whole_number, float: _number}


def _argparse_keywords(option: Option) -> dict[str, Any]:
    if option.is_positional:
        return {"nargs": "*" if option.repeated else None, "metavar": option.value, "help": option.full_help}
    keywords: dict[str, Any] = {"dest": option.attribute, "help": option.full_help}
    if option.value is None:
        return keywords | {"action": "store_true"}
    keywords |= {"metavar": option.value, "type": _CHECKED_TYPES.get(option.type, option.type)}
    if option.repeated:
        return keywords | {"action": "append", "default": []}
    if option.bare_value is not None:
        keywords |= {"nargs": "?", "const": option.bare_value}
    return keywords | {"action": Once, "default": option.default}
