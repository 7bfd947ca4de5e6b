"""The language rules of CONTRIBUTING.md, as far as a program can check them."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("losses", "models", "wgan_gp", "benchmarks", "studies", "examples")
FILES = [ROOT / name for name in ("train.py", "flags.py", "setup.py")] + sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py")
)
# This file quotes what it forbids.
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_language.py")
PATTERNS = ("*.md", "docs/*.md", "configs/*.flags", "requirements*.txt", "*.toml", "Makefile")
PATTERNS += ("examples/*/*.flags", "examples/*/*.md", "studies/*.md", "notebooks/*.ipynb")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))

# A first line that begins with one of these is half a sentence, or a question.
HALF_SENTENCE = re.compile(
    r"(As|By|For|How|If|In|Of|On|So|That|The same|What|When|Where|Whether|Which|Who|Whose|Why)\s"
)
VERB = re.compile(r"[A-Z][a-z]*[a-rt-z]s$")
# Words that end like a verb in the third person. Words that can be verbs too are not listed.
NOT_VERB = re.compile(
    r"(Always|Arguments|Axes|Batches|Bias|Bytes|Channels|Classes|Columns|Details|Digits|Errors"
    r"|Examples|Fakes|Features|Fields|Figures|Files|Gradients|Images|Its|Kernels|Keys|Latents"
    r"|Layers|Less|Lines|Logits|Losses|Means|Norms|Numbers|Options|Paths|Penalties|Perhaps|Pixels"
    r"|Plus|Points|Positions|Reals|Replicas|Rows|Seconds|Sentences|Settings|Shapes|Sides"
    r"|Statistics|Tensors|Terms|This|Thus|Units|Values|Variables|Various|Words)$"
)

# Parts of words, also of identifiers. An American reader stumbles over each of them.
BRITISH = re.compile(
    r"colour|centre(?!a)|centring|grey|neighbour|behaviour|favour|honour|artefact|catalogue|whilst"
    r"|(?:label|model|signal|travel|cancel|channel|level|total)l(?:ed|ing)(?![a-z])"
    r"|(?:analy|cataly|paraly)s(?:ed?|ing)(?![a-z])"
    r"|(?:categor|central|character|discret|emphas|factor|final|general|harmon|initial|local"
    r"|maxim|minim|modern|normal|optim|organ|parallel|parameter|parametr|penal|popular|prior|quant|random"
    r"|real|recogn|regular|reorgan|serial|special|stabil|standard|summar|symbol|synchron|token"
    r"|util|vector|visual)is(?:e|ed|er|ers|es|ing|ation|ations)(?![a-z])",
    re.IGNORECASE,
)
DIALECT = re.compile(r"\b(anew|beside|lest|mend|nobody|somebody)\b|\bis no flag\b", re.IGNORECASE)


def misspelled(text: str) -> list[tuple[int, str]]:
    """Returns (line number, what is wrong) for each word of `text` that breaks a rule."""
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        problems += [(number, f"British: {found[0]}") for found in BRITISH.finditer(line)]
        problems += [(number, f"unusual: {found[0]}") for found in DIALECT.finditer(line)]
    return problems


def too_long(text: str) -> list[tuple[int, str]]:
    """Returns (line number, what is wrong) for each line of prose in Markdown that is too long.

    Tables, links, commands and output of programs, which are indented, may be longer.
    """
    prose = re.sub(r"(?ms)^```.*?^```", lambda block: "\n" * block[0].count("\n"), text)
    return [
        (number, f"{len(line)} characters")
        for number, line in enumerate(prose.splitlines(), start=1)
        if len(line) > 100 and " " in line[4:] and not re.match(r" {4}|\||#|!\[", line)
    ]


def misworded(text: str) -> list[tuple[int, str]]:
    """Returns (line number, what is wrong) for each docstring of `text` that breaks a rule."""
    problems = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node)
        if docstring is not None:
            line = docstring.partition("\n")[0]
            problem = wrong_first_line(line, verb=begins_with_a_verb(node))
            problems += [(node.body[0].lineno, f"{problem}: {line}")] if problem else []
    return problems


def begins_with_a_verb(node: ast.AST) -> bool:
    """Returns whether the rule of verbs holds: for functions, but not for properties or classes."""
    decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
    is_property = any(each.endswith("property") for each in decorators)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property


def wrong_first_line(line: str, *, verb: bool) -> str | None:
    """Returns what is wrong with the first line of a docstring, or None."""
    if HALF_SENTENCE.match(line):
        return "half a sentence"
    if not line.endswith("."):
        return "no period at the end of the first line"
    first = line.split(maxsplit=1)[0]
    if verb and (NOT_VERB.match(first) or not VERB.match(first)):
        return 'no verb such as "Returns" at the beginning'
    return None


def check(path, problems):
    assert not problems, "".join(
        f"\n{path.relative_to(ROOT)}:{number}: {problem}" for number, problem in sorted(problems)
    )


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_code_keeps_the_rules(path):
    text = path.read_text()
    check(path, misworded(text) + misspelled(text))


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_keep_the_rules(path):
    """The docstring of a test is a sentence about it, which need not begin with a verb."""
    text = path.read_text()
    problems = [each for each in misworded(text) if "no verb" not in each[1]]
    check(path, problems + misspelled(text))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_documents_keep_the_rules(path):
    text = path.read_text()
    check(path, misspelled(text) + (too_long(text) if path.suffix == ".md" else []))


@pytest.mark.parametrize(
    "line",
    [
        "What a run is good for.",
        "Of all hidden layers.",
        "Whether it can draw points.",
        "How to build a network.",
        "That one process writes.",
        "The same where a penalty differentiates twice.",
        "A line without a period",
    ],
)
def test_half_sentences_are_found(line):
    for before in ("", "class C:\n    ", "def f():\n    ", "@property\ndef f(self):\n    "):
        found = misworded(f'{before}"""{line}\n\nMore.\n"""\n')
        assert [number for number, _ in found] == [before.count("\n") + 1]


def test_functions_begin_with_a_verb():
    function = 'def f():\n    """{}."""\n'
    for line in ("The norm", "`values` as a tensor", "Points on a line", "This is", "Class", "x^2"):
        (problem,) = misworded(function.format(line))
        assert problem == (2, f'no verb such as "Returns" at the beginning: {line}.')
    for line in ("Returns it", "Computes the norm", "Raises an error", "Applies a kernel"):
        assert misworded(function.format(line)) == []
    for before in ("class C:\n    ", "@property\ndef f(self):\n    ", ""):
        assert misworded(f'{before}"""A pair of losses."""\n') == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("colour = 1", "colour"),
        ("def Normalise_all(x): ...", "Normalise"),
        ("# un_penalised weights", "penalised"),
        ('"""Initialisation of grey images."""', "Initialisation"),
        ("penalty = zero_centred(norm)", "centre"),
        ("# Nobody reads this", "Nobody"),
    ],
)
def test_spelling_is_checked_in_names_comments_and_text(text, found):
    number, problem = misspelled(f"x = 1\n{text}")[0]
    assert number == 2 and problem.endswith(f": {found}")


def test_long_lines_of_prose_are_found():
    long = "word " * 30
    ignored = f"    {long}\n| {long} |\n# {long}\n```\n{long}\n```\n{'x' * 200}"
    assert too_long(f"{ignored}\n- {long}") == [(8, "152 characters")]


def test_american_spelling_passes():
    words = "raise noise otherwise precise normalize center central analyses signals neighbor"
    assert misspelled(f"{words} optimistic\n'zero_centered', bias_canceled") == []
