"""The language rules of CONTRIBUTING.md, as far as a program can check them."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("losses", "models")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# A first line that begins with one of these is half a sentence, or a question.
HALF_SENTENCE = re.compile(
    r"(As|By|For|How|If|In|Of|On|So|That|The same|What|When|Where|Whether|Which|Who|Whose|Why)\s"
)
VERB = re.compile(r"[A-Z][a-z]*[a-rt-z]s$")
# Words that end like a verb in the third person. Words that can be verbs too are not listed.
NOT_VERB = re.compile(
    r"(Always|Axes|Batches|Bias|Bytes|Channels|Classes|Details|Digits|Errors|Examples|Fakes"
    r"|Features|Fields|Gradients|Images|Its|Kernels|Keys|Latents|Layers|Less|Lines|Logits|Losses"
    r"|Means|Norms|Numbers|Paths|Penalties|Perhaps|Pixels|Plus|Points|Reals|Replicas|Settings"
    r"|Shapes|Sides|Statistics|Tensors|Terms|This|Thus|Units|Values|Variables|Various|Words)$"
)

# Parts of words, also of identifiers. An American reader stumbles over each of them.
BRITISH = re.compile(
    r"colour|centre(?!a)|centring|grey|neighbour|behaviour|favour|honour|artefact|catalogue|whilst"
    r"|(?:label|model|signal|travel|cancel|channel|level|total)l(?:ed|ing)(?![a-z])"
    r"|(?:analy|cataly|paraly)s(?:ed?|ing)(?![a-z])"
    r"|(?:categor|central|character|discret|emphas|factor|final|fulf|general|harmon|initial|local"
    r"|maxim|minim|modern|normal|optim|organ|parallel|parametr|penal|popular|prior|quant|random"
    r"|real|recogn|regular|reorgan|serial|special|stabil|standard|summar|symbol|synchron|token"
    r"|util|vector|visual)is(?:e|ed|er|ers|es|ing|ation|ations)(?![a-z])",
    re.IGNORECASE,
)
DIALECT = re.compile(r"\b(anew|beside|lest|mend|nobody|somebody)\b|\bis no flag\b", re.IGNORECASE)
# Public names that stay: values and functions of the interface, and fields of saved models.
EXCEPTIONS = ("zero_centred", "bias_cancelled")


def misspelled(text: str) -> list[tuple[int, str]]:
    """Returns (line number, what is wrong) for each word of `text` that breaks a rule."""
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        for name in EXCEPTIONS:
            line = line.replace(name, "")  # noqa: PLW2901
        problems += [(number, f"British: {found[0]}") for found in BRITISH.finditer(line)]
        problems += [(number, f"unusual: {found[0]}") for found in DIALECT.finditer(line)]
    return problems


def misworded(text: str) -> list[tuple[int, str]]:
    """Returns (line number, what is wrong) for each docstring of `text` that breaks a rule."""
    problems = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node)
        if docstring is not None:
            line = docstring.partition("\n")[0]
            problem = wrong_first_line(line, verb=is_method_or_function(node))
            problems += [(node.body[0].lineno, f"{problem}: {line}")] if problem else []
    return problems


def is_method_or_function(node: ast.AST) -> bool:
    """Tells functions, which begin with a verb, from properties, which are named like values."""
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_keeps_the_rules(path):
    text = path.read_text()
    problems = sorted(misworded(text) + misspelled(text))
    assert not problems, "".join(
        f"\n{path.relative_to(ROOT)}:{number}: {problem}" for number, problem in problems
    )


@pytest.mark.parametrize(
    "line",
    [
        "What a run is good for.",
        "Of all hidden layers.",
        "Whether it can draw points.",
        "How to build a network.",
        "That one process writes.",
        "The same where a penalty differentiates twice.",
        "The penalty's gradient",
        "",
    ],
)
def test_half_sentences_are_found(line):
    for body in ("", "class C:\n    ", "def f():\n    "):
        assert line == "" or misworded(f'{body}"""{line}"""\n') != []
    assert misworded(f'def f():\n    """{line}\n\n    More."""\n')


def test_a_function_begins_with_a_verb_and_a_property_need_not():
    function = 'def f():\n    """{}."""\n'
    for noun in (
        "The norm",
        "`values` as a tensor",
        "Points on a line",
        "This is",
        "norm^2",
        "[B]",
    ):
        assert misworded(function.format(noun)) == [
            (2, f'no verb such as "Returns" at the beginning: {noun}.')
        ]
    for verb in ("Returns it", "Computes the norm", "Raises an error", "Applies a kernel"):
        assert misworded(function.format(verb)) == []
    assert misworded(f"class C:\n  @property\n  {function.format('The names').strip()}") == []
    assert misworded('class C:\n    """A pair of losses."""\n') == []


def test_british_spelling_is_found_in_names_comments_and_text():
    for word in ("colour", "normalise", "Initialiser", "grey_levels", "un_penalised", "Behaviour"):
        assert misspelled(f"x = 1\n{word} = 2") == [(2, misspelled(word)[0][1])]
    american = "raise noise otherwise normalize precise center analyses signals modeling optimistic"
    assert misspelled(american) == [] == misspelled("'zero_centred', bias_cancelled")
    assert misspelled("zero-centred") == [(1, "British: centre")]
