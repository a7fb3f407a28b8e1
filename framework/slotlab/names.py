"""Names that somebody chose (tenants, options, plugins), in the syntax of others: each keeps its own, and can be read back."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from urllib.parse import quote, unquote

BRIEF = 120  # characters of a value in a message
LIMIT = 250  # characters of a key in MLflow


def escape(name: str) -> str:
    """`name` in letters, digits and `_ - . :`, as URLs do it with `%`: a byte of any other character is `:` and two digits.

    Never empty, never dots alone: a space is `:20`, an empty name `:`. Different names stay different.
    """
    text = quote(name, safe="", errors="surrogatepass").replace("~", "%7E").replace("%", ":")
    return text if text.strip(".") else text.replace(".", ":2E") or ":"


def unescape(key: str) -> str:
    """The name that `escape` made `key` of."""
    return "" if key == ":" else unquote(key.replace(":", "%"), errors="surrogatepass")


def fit(key: str) -> str:
    """An escaped `key` of at most LIMIT characters: of a longer one its beginning, `::` and a hash of all of it."""
    return key if len(key) <= LIMIT else f"{key[: LIMIT - 18]}::{sha256(key.encode()).hexdigest()[:16]}"


def dotted(*parts: str) -> str:
    """The keys on the way to an option as one, as TOML writes it: `workload.weights.light`, `workload.weights."a.b"`."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else json.dumps(part, ensure_ascii=False) for part in parts)


def shown(text: str) -> str:
    """`text` on one line: what no terminal should be handed (line ends, control characters) as Python writes it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def brief(value: object) -> str:
    """A value in a message: of a long one its beginning and its end."""
    text = str(value)
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 40]}...{text[-30:]} ({len(text)} characters)"
