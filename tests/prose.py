"""A small linter of prose, for documentation, docstrings, comments, messages and the texts of the data.

``python tests/prose.py [FOLDER]`` prints what it finds below a checkout. It reads files only, so it works on any commit.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 35
KINDS = ("documentation", "docstring", "comment", "message", "data")


class Passage(NamedTuple):
    """A piece of text with its place: a paragraph, a list item, a docstring, a message."""

    path: str
    line: int
    kind: str
    text: str


class Finding(NamedTuple):
    """A sentence that breaks a rule."""

    passage: Passage
    rule: str
    sentence: str

    @property
    def place(self) -> str:
        """Path and line."""
        return f"{self.passage.path}:{self.passage.line}"


# Rules ------------------------------------------------------------------------------------------------------------

#: Phrases that read like a translation, each with what to write instead.
PHRASES = {
    r"st(?:ands?|ood) (?:in|there|behind|beside|under|below|above|for|on|at|as)": "name who or what does it",
    r"(?:lie|lies|lay) (?:in|there|behind|beside|under|below|above|on|at|outside|inside)": "is in, is below, …",
    r"(?:is|are|was|were|be) (?:not )?said": "name who says it, or state it",
    r"say(?:s|ing)? (?:of|so|nothing)": "describes, reports",
    r"nothing but": "only",
    r"all the same": "still, or delete it",
    r"whatever": "any",
    r"as such": "delete it",
    r"by (?:itself|themselves)": "alone, automatically",
    r"of (?:its|their|one's) own": "its own …, or delete it",
    r"what is not": "name it",
    r"but for": "except",
    r"any more|no more(?! (?:\w+ )?than)": "no longer",
    r"anyhow|anyway": "delete it",
    r"without a word": "silently",
    r"go(?:es)? (?:by|on to)": "is called, continues",
    r"takes? (?:its|their) place|gives? way|in its place": "replaces, is replaced by",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"is (?:it )?meant": "name it",
    r"(?<!model )cards?": "GPU",
    r"beside": "next to, with, besides",
    r"(?:,|or|and) else": "otherwise",
    r"unasked|asked for": "requested",
    r"(?:some|no)body": "someone, no one, or the person",
    r"bears? on": "concerns, affects",
    r"heeds?": "follows",
    r"hands?(?:ed)? (?:on|over)": "passes",
    r"the first of these|the one of the two": "name it",
}  # fmt: skip
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
#: Sentences that begin with a clause instead of a noun, or in reverse order.
RIDDLE = re.compile(r"(?:What|Who|Whoever|Whether|Where|Of (?:a|an|the|all|what|its|such)) ")
PARTICIPLE = (
    r"(?:\w{3,}ed|born|bought|broken|built|chosen|cut|done|drawn|found|given|got|held|hidden|kept|known|laid|led|left"
    r"|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|split|taken|told|typed|understood|written)"
)
PASSIVE = re.compile(rf"\b(?:is|are|was|were|be|been|being)\s+(?:not\s+|\w+ly\s+)?{PARTICIPLE}\b")
#: One passive verb that depends on another, or a sentence full of them.
CHAIN = re.compile(rf"{PASSIVE.pattern}\s+(?:to|and|or|as|that)\s+(?:be|is|are|has been)\s+{PARTICIPLE}\b")

#: Abbreviations that every reader of verl's documentation knows, or that name a format, a program or a setting.
KNOWN = {
    name
    for names in (
        "AI API ASCII CI CLI CPU CSV CUDA DTD FAQ GB GPU HTML HTTP HTTPS ID IDE JSON KV LLM MB MIT NPU OK OOM PDF PR RAM RL SARIF",
        "SVG TODO URL UTF VRAM XML YAML RTX",
        # verl's algorithms, backends and ways to divide a model, as its own documentation writes them
        "ANPO CISPO CP DAPO DP EP FFN FSDP GAE GMPO GQA GRPO GSPO HF KL MFU MLA MTP NCCL OPD PP PPO PRIME REINFORCE REMAX RLHF",
        "SFT SP SPPO TP VL VLM",
        # levels of messages, tags of runs, placeholders and files
        "ERROR WARNING INFO MIN RECOMMENDED NAME VALUE COMMAND MODEL DIR FILE KEY RANK TOKENS README CHANGELOG CONTRIBUTING SECURITY",
        "HEAD LICENSE",
    )
    for name in names.split()
}
ABBREVIATION = re.compile(r"(?<![\w/.\-<])[A-Z]{2,}s?(?![\w/\-])")


def problems(passage: Passage) -> Iterator[Finding]:
    """Yield what breaks a rule in one passage."""
    for sentence in sentences(passage.text):
        for match in PHRASE.finditer(sentence):
            yield Finding(passage, f"phrase: {match[0].lower()}", sentence)
        if words(sentence) > LONGEST:
            yield Finding(passage, "long sentence", sentence)
        if RIDDLE.match(sentence) and sentence.endswith("."):
            yield Finding(passage, "riddle", sentence)
        if CHAIN.search(sentence) or len(PASSIVE.findall(sentence)) > 2:
            yield Finding(passage, "passive chain", sentence)


def undefined(path: str, passages: Iterable[Passage]) -> Iterator[Finding]:
    """Yield the abbreviations of a page that neither every reader knows nor the page explains."""
    found = [passage for passage in passages if passage.path == path]
    whole = " ".join(passage.text for passage in found)
    for passage in found:
        for name in dict.fromkeys(ABBREVIATION.findall(re.sub(r"`[^`]*`", "", passage.text))):
            short = name.removesuffix("s")
            if (
                short not in KNOWN
                and name not in KNOWN
                and f"({short})" not in whole
                and f"{short} (" not in whole
            ):
                yield Finding(passage, f"undefined abbreviation: {name}", passage.text)


def sentences(text: str) -> list[str]:
    """Split a passage at the ends of its sentences.

    >>> sentences("Set it. See e.g. *this* page: it says more.")
    ['Set it.', 'See e.g. *this* page: it says more.']
    """
    flat = " ".join(text.split())
    end = r"(?:(?<=[.!?])|(?<=[.!?][)”*])|(?<=[.!?]\*\*))(?<!e\.g\.)(?<!i\.e\.)"
    return [part for part in re.split(rf"{end}\s+(?=[A-Z“(*`\[:{{])", flat) if part]


def words(sentence: str) -> int:
    """Count the words; what is written as code is one."""
    plain = re.sub(r"`+[^`]*`+", "code", sentence)
    return len(re.findall(r"[^\W_][\w'’.-]*", plain))


# Passages ---------------------------------------------------------------------------------------------------------


def passages(root: Path) -> list[Passage]:
    """Return every passage below a checkout, in the order of files and lines."""
    found: list[Passage] = []
    pages = [
        path
        for pattern in ("*.md", "data/*.md", "docs/*.*", "docs/snippets/*.rst")
        for path in root.glob(pattern)
    ]
    for path in sorted(pages):
        if path.suffix in {".rst", ".md"}:
            found += page_passages(path.relative_to(root).as_posix(), path.read_text("utf-8"))
    for folder in ("sphinx_verl_resources", "docs/_ext", "tools", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            in_code = code_passages(path.relative_to(root).as_posix(), path.read_text("utf-8"))
            # Tests hold texts of every kind, bad ones on purpose.
            found += [item for item in in_code if folder != "tests" or item.kind != "message"]
    for path in sorted((root / "data").rglob("*.yaml")):
        found += data_passages(path.relative_to(root).as_posix(), path.read_text("utf-8"))
    return found


#: Directives whose content is text; that of any other is code, or names something.
PROSE = {
    "note",
    "warning",
    "tip",
    "admonition",
    "seealso",
    "rst:directive",
    "rst:role",
    "confval",
    "glossary",
}
ITEM = re.compile(r"(?:[-*+]|\d+\.|#\.|\* -) +|#+ +")


def page_passages(path: str, text: str) -> Iterator[Passage]:
    """Yield the paragraphs, list items, terms and cells of a page in reStructuredText or Markdown, without code."""
    block: list[str] = []
    start = last = 0
    in_item = False
    is_markdown = path.endswith(".md")
    for number, indent, line in [*(without_fences if is_markdown else without_directives)(text), (0, 0, "")]:
        is_term = len(block) == 1 and indent > last and not in_item  # and its definition begins here
        if block and (not line or is_term or ITEM.match(line) or line.startswith("|")):
            yield Passage(path, start, "documentation", plain("\n".join(block)))
            block = []
        if line.startswith("|"):
            cells = [cell for cell in line.strip("|").split("|") if re.search(r"[a-z]{2,} [a-z]{2,}", cell)]
            yield from (Passage(path, number, "documentation", plain(cell.strip())) for cell in cells)
        elif line:
            if not block:
                start, in_item = number, ITEM.match(line) is not None
            last = indent
            block.append(ITEM.sub("", line, count=1))


def without_fences(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield number, indent and text of the lines of a page in Markdown; a line of code is empty."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        mark = re.match(r"`{3,}|:{3,}|$", stripped)
        if mark and mark[0] and fence in {"", mark[0]}:
            fence = "" if fence else mark[0]
            stripped = ""
        yield (
            number,
            len(line) - len(line.lstrip()),
            "" if fence or re.match(r"\|?\s*-{3}|<", stripped) else stripped,
        )


def without_directives(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield number, indent and text of the lines of a page in reStructuredText; a line of code is empty."""
    skipped = -1  # the indent of the directive or paragraph whose content is code
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped and indent <= skipped:
            skipped = -1
        directive = re.match(r"\.\. (?:([\w:-]+)::)?", stripped)
        if skipped < 0 and (directive[1] not in PROSE if directive else stripped.endswith("::")):
            yield number, indent, "" if directive else stripped
            skipped = indent
        elif skipped >= 0 or directive or re.match(r"([=~^.\"*#+-])\1{2,}$|:[\w-]+:( |$)", stripped):
            yield number, indent, ""
        else:
            yield number, indent, stripped


def plain(text: str) -> str:
    """Return a passage without markup: text of links and roles, code in single backticks."""
    text = re.sub(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^`]*>)?`(?!`)", r"\1", text)
    text = re.sub(r"(?<!`)`([^`<]+?)\s*<[^`]*>`_*", r"\1", text)
    text = re.sub(r"!?\[([^\]]+)\]\([^)]*\)", r"\1", text)
    text = text.replace("``", "`")
    return re.sub(r"`([^`]+)`_+", r"\1", text)


def code_passages(path: str, source: str) -> Iterator[Passage]:
    """Yield the docstrings, comments and messages of a module. A message is any other text of several words."""
    tree = ast.parse(source)
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
            text := ast.get_docstring(node)
        ):
            documented.add(node.body[0].value)
            # Paragraphs, and the entries below "Args:", "Attributes:" and the like.
            for paragraph in re.split(r"\n\s*\n|\n(?= *(?:\w+(?:, \w+)*|- .*):)", text):
                if ">>>" not in paragraph:
                    entry = re.sub(r"^\s*(?:\w+(?:, \w+)*:\s+)?", "", paragraph)
                    yield Passage(path, node.body[0].lineno, "docstring", entry.replace("``", "`"))
    formatted = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in documented | formatted
        ):
            text = node.value
        if re.search(r"[a-z]{2,},? [a-z]{2,}", text) and not re.search(r"\\[\w(]|\(\?|</", text):
            for paragraph in re.split(r"\n\s*\n|\n(?=[\s#])", text):
                yield Passage(path, node.lineno, "message", paragraph.replace("``", "`"))
    comment: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#!|# (?:fmt|type|noqa|ruff)", token.string):
            if comment and token.start[0] > last + 1:
                yield Passage(path, last - len(comment) + 1, "comment", "\n".join(comment))
                comment = []
            comment.append(re.sub(r"^#:? ?|  # noqa.*", "", token.string))
            last = token.start[0]
    if comment:
        yield Passage(path, last - len(comment) + 1, "comment", "\n".join(comment))


def data_passages(path: str, text: str) -> Iterator[Passage]:
    """Yield the texts of several words that a data file holds."""
    for node in yaml_scalars(yaml.compose(text, Loader=yaml.CSafeLoader)):
        if re.search(r"[a-z]{2,},? [a-z]{2,}", node.value):
            yield Passage(path, node.start_mark.line + 1, "data", node.value)


def yaml_scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Yield the values below a node."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from yaml_scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from yaml_scalars(value)


def findings(found: list[Passage]) -> list[Finding]:
    """Return everything that breaks a rule, abbreviations in documentation only."""
    every = [finding for passage in found for finding in problems(passage)]
    for path in dict.fromkeys(passage.path for passage in found if passage.kind == "documentation"):
        every += undefined(path, found)
    return every


def main(folder: str = ".", wanted: str = "") -> None:
    """Print every finding, then their number by kind and rule."""
    every = [item for item in findings(passages(Path(folder))) if item.passage.path.startswith(wanted)]
    lines = [f"{item.place}: {item.rule}: {item.sentence}" for item in every]
    counts = Counter((item.passage.kind, item.rule.split(":")[0]) for item in every)
    rules = sorted({rule for _, rule in counts})
    rows = [["", *rules], *([kind, *(counts[kind, rule] for rule in rules)] for kind in KINDS)]
    lines += ["".join(f"{cell:>24}" for cell in row) for row in rows]
    sys.stdout.write("\n".join([*lines, f"{len(every)} findings", ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
