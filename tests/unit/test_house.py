"""Rules of the house that no tool checks: names, sizes, docstrings, and decisions that are made on values, not on sentences."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.order import LONGEST

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "mirrormaker"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONG, LONGER = 300, 400  # lines
MOST_LONG_FILES = 17
TEXT_SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count"}
PATTERN_SEARCHES = {"match", "search", "fullmatch", "findall", "finditer"}


def place(module: Path, node: ast.AST | None = None) -> str:
    """Return where something is, as editors understand it."""
    line = getattr(node, "lineno", 1)
    return f"{module.relative_to(ROOT)}:{line}"


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), str(module))


def assert_none(violations: Iterable[str], rule: str) -> None:
    """Fail with one violation per line."""
    found = list(violations)
    if found:
        pytest.fail(f"{rule}; {len(found)} violations:\n" + "\n".join(found), pytrace=False)


# -- names and sizes


def test_no_module_name_occurs_twice() -> None:
    places = defaultdict(list)
    for module in MODULES:
        # A command in cli/ may have the name of what it runs.
        if module.stem not in ("__init__", "__main__") and module.parent != PACKAGE / "cli":
            places[module.stem].append(place(module))
    twice = (f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1)
    assert_none(twice, "one name means one thing")


def test_files_are_short_enough_to_read() -> None:
    lines = {module: len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    sizes = [f"{place(module)}: {count} lines" for module, count in lines.items() if count > LONGER]
    assert_none(sizes, f"no file has more than {LONGER} lines")
    sizes = [f"{place(module)}: {count} lines" for module, count in lines.items() if count > LONG]
    assert len(sizes) <= MOST_LONG_FILES, f"more than {MOST_LONG_FILES} files over {LONG} lines:\n" + "\n".join(sizes)


def test_the_order_of_tests_names_files_that_exist() -> None:
    assert_none((name for name in LONGEST if not (ROOT / name).exists()), "tests/support/order.py names existing files")


# -- decisions


def decisions_on_sentences(module: ast.Module) -> Iterator[ast.AST]:
    """Find each place that searches or compares the text of an exception.

    An exception is a name that `except ... as` binds, a parameter or variable that is annotated with an exception class,
    or a name that is called like one. A variable that holds the text counts as the text.
    Comparing the text with another variable is allowed: a log line is then written once and not every second.
    """
    for function in _scopes(module):
        errors = _exception_names(function)
        texts = _names_of_texts(function, errors)
        for node in _own_nodes(function):
            if isinstance(node, ast.Compare) and _decides(node, errors, texts):
                yield node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = node.func
                on_text = called.attr in TEXT_SEARCHES and _is_text(called.value, errors, texts)
                by_pattern = called.attr in PATTERN_SEARCHES and any(_is_text(a, errors, texts) for a in node.args)
                if on_text or by_pattern:
                    yield node
            elif isinstance(node, ast.Match) and _is_text(node.subject, errors, texts):
                yield node


def _decides(node: ast.Compare, errors: set[str], texts: set[str]) -> bool:
    sides = [node.left, *node.comparators]
    is_text = [_is_text(side, errors, texts) for side in sides]
    remembered = all(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops) and not any(
        isinstance(part, ast.Constant)
        for side, text in zip(sides, is_text, strict=True)
        if not text
        for part in ast.walk(side)
    )
    return any(is_text) and not remembered


def _scopes(module: ast.Module) -> Iterator[ast.AST]:
    yield module
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk a scope without the functions in it, which are scopes of their own."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _exception_names(scope: ast.AST) -> set[str]:
    names = {"error", "exception", "exc", "problem"}
    for node in ast.walk(scope):
        if isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.arg) and node.annotation is not None and _names_an_exception(node.annotation):
            names.add(node.arg)
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and _names_an_exception(node.annotation)
        ):
            names.add(node.target.id)
    return names


def _names_an_exception(annotation: ast.expr) -> bool:
    """Return True for an exception class, or a union of some, but not for a container of exceptions."""
    if isinstance(annotation, ast.BinOp):
        return _names_an_exception(annotation.left) or _names_an_exception(annotation.right)
    name = ast.unparse(annotation).rpartition(".")[2]
    return name.endswith(("Error", "Exception", "Lost", "Failed", "Undeliverable"))


def _names_of_texts(scope: ast.AST, errors: set[str]) -> set[str]:
    names: set[str] = set()
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and _is_text(node.value, errors, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.NamedExpr) and _is_text(node.value, errors, names):
            names.add(node.target.id)
    return names


def _is_text(node: ast.expr, errors: set[str], texts: set[str]) -> bool:
    """Return True for the text of an exception, however it is made: str(error), repr(error), f"{error}", error.args[0]."""
    if isinstance(node, ast.Name):
        return node.id in texts
    if isinstance(node, ast.NamedExpr):
        return _is_text(node.value, errors, texts)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return any(_is_exception(part, errors) or _is_text(part, errors, texts) for part in parts)
    if isinstance(node, ast.Subscript):
        value = node.value
        return isinstance(value, ast.Attribute) and value.attr == "args" and _is_exception(value.value, errors)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and len(node.args) == 1:
            return _is_exception(node.args[0], errors)
        # str(error).lower() is still the text.
        return isinstance(node.func, ast.Attribute) and _is_text(node.func.value, errors, texts)
    return False


def _is_exception(node: ast.expr, errors: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in errors
    if isinstance(node, ast.Attribute):
        return node.attr in ("__cause__", "__context__", "error", "exception")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exception"


def test_no_decision_is_made_on_the_text_of_an_error() -> None:
    found = (
        f"{place(module, node)}: {ast.unparse(node).splitlines()[0]}"
        for module in MODULES
        for node in decisions_on_sentences(tree(module))
    )
    assert_none(found, "the type and the attributes of an error decide, its text only informs")


@pytest.mark.parametrize(
    "code",
    [
        "'gone' in str(error)",
        "str(error) == 'gone'",
        "str(error).startswith('gone')",
        "'gone' in f'{error}'",
        "'gone' in str(error).lower()",
        "'gone' in error.args[0]",
        "re.search('gone', str(error))",
        "'gone' in str(error.__cause__)",
        "'gone' in str(task.exception())",
        "def f(cause: ValueError | None): return 'gone' in str(cause)",
        "try: pass\nexcept OSError as why:\n    'gone' in str(why)",
        "try: pass\nexcept OSError as why:\n    text = str(why)\n    'gone' in text",
        "if 'gone' in (text := str(error)): pass",
        "match str(error):\n    case 'gone': pass",
    ],
)
def test_a_decision_on_a_sentence_is_found(code: str) -> None:
    assert list(decisions_on_sentences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "print(str(error))",
        "str(error) != self.said",
        "' '.join(str(error).split())",
        "text = f'{topic}: {error}'",
        "error.code == 3",
        "'a' in str(number)",
        "raise ValueError(f'{name}: {error}')",
        "def f(errors: list[OSError]): return 'gone' in str(len(errors))",
    ],
)
def test_a_text_that_only_informs_is_allowed(code: str) -> None:
    assert not list(decisions_on_sentences(ast.parse(code)))


# -- docstrings


def without_docstring(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Find the public module, classes, functions and methods without a docstring. Nested functions are not public."""
    if not ast.get_docstring(module) and module.body:
        yield "the module", module
    yield from _undocumented(module.body, "")


def _undocumented(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):  # definitions for one platform or version
            yield from _undocumented([*node.body, *node.orelse], prefix)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and not _repeats(node):
            yield f"{prefix}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body, f"{prefix}{node.name}.")


def _repeats(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True for an overload, and for the setter of a documented property."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"overload", "setter", "deleter", "override"})


def test_every_public_thing_has_a_docstring() -> None:
    found = (
        f"{place(module, node)}: {name}"
        for module in MODULES
        if module.stem != "__main__"
        for name, node in without_docstring(tree(module))
    )
    assert_none(found, "every public module, class, function and method has a docstring")


def test_missing_docstrings_are_found() -> None:
    code = "class A:\n    def b(self): ...\n    def _c(self): ...\n    def __d__(self): ...\ndef e():\n    'E.'\n    def f(): ..."
    assert [name for name, _ in without_docstring(ast.parse(code))] == ["the module", "A", "A.b"]
