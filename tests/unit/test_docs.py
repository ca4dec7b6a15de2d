"""The documentation: links that resolve, lines that fit, and a map of the code that is complete."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "mirrormaker"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
LONGEST = 132
# Their generators decide on the lines of these pages.
GENERATED = {"benchmarks.md", "command-lines.md", "compatibility.md", "reliability.md"}

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return every link of a page that stays inside of the repository."""
    return [link for link in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def section(page: Path, title: str) -> str:
    """Return one section of a page, up to the next heading of the same level."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", prose(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section {title}"
    return found[1]


def names_in(module: Path) -> set[str]:
    """Return what a module defines: functions, classes, their methods, and constants."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{method.name}" for method in inner}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {link}: there is no such file"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {link}: there is no such heading"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_no_line_is_too_long(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > LONGEST]
    assert not long, f"{page.name}: lines of more than {LONGEST} characters: {long}"


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = {DOCS / "index.md"}, [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        paths = {(page.parent / link.partition("#")[0]).resolve() for link in links(page) if not link.startswith("#")}
        new = {path for path in paths if path.suffix == ".md" and path.exists()} - reached
        reached |= new
        waiting += new
    missing = sorted(page.name for page in DOCS.glob("*.md") if page not in reached)
    assert not missing, f"docs/index.md does not lead to {missing}"


def test_the_map_of_the_code_names_every_module_and_no_other() -> None:
    text = section(DOCS / "design.md", "Files")
    packages = {f"{name}/__init__.py" for name in re.findall(r"^### `([\w/]+)/`$", text, re.MULTILINE)}
    modules = set(re.findall(r"^- `([\w/]+\.py)`: \S", text, re.MULTILINE))
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    assert not there - packages - modules, "docs/design.md, Files, does not name these"
    assert not (packages | modules) - there, "docs/design.md, Files, names these, and they do not exist"


def test_the_design_names_functions_that_exist() -> None:
    """`driver/flow.py:Flow.run` in the text must be in that module; a path under tests/ counts from the repository."""
    missing = []
    for path, name in _CODE.findall(prose(DOCS / "design.md")):
        module = ROOT / path if path.startswith(("tests/", "faults/", "fuzz/", "bench/")) else PACKAGE / path
        if not module.exists() or (name and name not in names_in(module)):
            missing.append(f"{path}:{name}")
    assert not missing
