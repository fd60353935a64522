"""LaTeX mathematics as MathML, made when the site is built: nothing is fetched, no script runs.

The conversion is docutils' own. What it reads differently from LaTeX is rewritten first
(``\\frac12`` is one half, ``x^10`` is x to the power of 1, times 0), and a command that it does not
know is a warning, which the build makes an error.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

WHOLE = re.compile(
    r"\s*\\begin\{(align|aligned|equation|gather|multline)\*?\}(.*)\\end\{\1\*?\}\s*", re.S
)
SYNONYMS = {r"\dots": r"\ldots", r"\dotsc": r"\ldots", r"\dotsb": r"\cdots"}
ARGUMENTS = {
    r"\frac": 2,
    r"\tfrac": 2,
    r"\dfrac": 2,
    r"\binom": 2,
    r"\tbinom": 2,
    r"\dbinom": 2,
    r"\sqrt": 1,
    "^": 1,
    "_": 1,
}
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[\^_]|\s+|.", re.S)


def converted(tex: str, *, block: bool) -> str:
    """``tex`` as one ``<math>`` element.

    Raises:
        MathError: a command or an environment that docutils does not know, or brackets without
            their other half.
    """
    whole = WHOLE.fullmatch(tex)
    tokens = TOKEN.findall(whole[2].strip() if whole else tex.strip())
    for one, other in (("{", "}"), (r"\left", r"\right")):
        if tokens.count(one) != tokens.count(other):
            raise MathError(f"{one} and {other} do not match")
    return tex2mathml(braced(tokens), as_block=block)


def braced(tokens: list[str]) -> str:
    """The same LaTeX with braces around one-character arguments; ``\\dots`` by its synonym."""
    out: list[str] = []
    # at each depth of braces: how many arguments the last command still wants
    wanted: list[int] = [0]
    for token in tokens:
        if token == "{":
            wanted[-1] = max(wanted[-1] - 1, 0)
            wanted.append(0)
        elif token == "}":
            wanted = wanted[:-1] or [0]
        elif token in ARGUMENTS:
            wanted[-1] = ARGUMENTS[token]
        elif wanted[-1] and token.isalnum():
            wanted[-1] -= 1
            token = f"{{{token}}}"
        elif wanted[-1] and not token.isspace() and token != "[":
            wanted[-1] -= 1
        out.append(SYNONYMS.get(token, token))
    return "".join(out)


def _visit(self, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    try:
        math = converted(node.astext(), block=block)
    except (MathError, SyntaxError) as error:
        logging.getLogger(__name__).warning(
            "mathematics: %s in %s", error, node.astext(), location=node
        )
        raise nodes.SkipNode from error
    if not block:
        self.body.append(f'<span class="math">{math}</span>')
        raise nodes.SkipNode
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(self.starttag(node, "div", CLASS="math") + f"{math}{number}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_visit, None), (_visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
