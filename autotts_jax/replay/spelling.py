r"""Spellings: what is read of an answer, and numbers, which most answers are.

A spelling leaves out what surrounds an answer (``$``, ``\text{}``, ``\boxed{}``, a full stop), and writes
alike what is the same in LaTeX, Unicode and plain text. What needs no computer algebra is read here: numbers,
quantities with a unit, choices, words, dates and times.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction

MAX_LENGTH = 200
"""Characters that an answer may have; longer ones are text."""

ERROR = "ERR"
"""What stands for an answer that could not be extracted."""


class NoAnswerError(ValueError):
    """What was written is not an answer, such as arithmetic that is still to be done."""


class UnreadableError(ValueError):
    """What was written cannot be read as a number, a word or mathematics."""


_MAX_EXPONENT = 400
_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–‐‑‒", "-"),
        "×": r"\times ",
        **dict.fromkeys("·⋅∙", r"\cdot "),
        "÷": r"\div ",
        "⁄": "/",
        "°": " degrees ",
        "∞": r"\infty ",
        "π": r"\pi ",
        "∪": r"\cup ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "ℝ": r"\mathbb{R} ",
        "ℤ": r"\mathbb{Z} ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "±": r"\pm ",
        "≈": r"\approx ",
        "≡": r"\equiv ",
        **dict.fromkeys("€£¥₹"),
        **dict.fromkeys("‘’", "'"),
        **dict.fromkeys("“”„«»「」『』", '"'),
        **{chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)},  # full width
    }
)
_FONT = r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathit|mathsf|mbox|boxed|fbox|ce)"
_INNER_FONT = re.compile(_FONT + r"\s?\{([^{}]*(?:[_^] ?\{[0-9]*[-+]?\}[^{}]*)*)\}")
_GROUPED = re.compile(r"(?<![0-9.,])(?!0)[0-9]{1,3}(?:(?:,|\{,\}|,\\!|\\,|\\ | )[0-9]{3})+(?![0-9])")
_GROUPED_BY_POINTS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,}(?![0-9.,])")
_BRACED_COMMA = re.compile(r"(?<![0-9.,}])([0-9]+)\{,\}([0-9]+)(?![0-9.,{])")
_COMMA = re.compile(
    r"(?P<before>(?:[A-Za-z] ?= ?)?[-+]?)(?P<whole>[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),(?P<decimals>[0-9]+)"
)
_WRAPPER = re.compile(
    "|".join(
        (
            _FONT + r"\s?\{([^{}]*)\}",
            # what is left of a box or a formula
            r"\\?boxed\{([^{}]*)\}?|([^{}]*)\}+|((?:(?!\\[(\[]).)*)\\[)\]]",
            r"\\\((.*)\\\)|\\\[(.*)\\\]|\$+([^$]*)\$*",
            r"\*\*(.*)\*\*|\"([^\"]*)\"|'([^']*)'|`(.*)`",
            r"(.*[^.\\])\.|(.*[^\\]|)[,;:?]|(.*)\\\\|\\[,;: ](.*)|(.*)\\[,;: ]|=(.*)",
            r"(?i:(?:the )?(?:final )?answer(?: is\b:?|:|=)|(?:about|approximately|exactly|\\approx)\b)(.+)",
        )
    )
)
_REWRITTEN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|limits)(?![A-Za-z])|\\!", ""),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac(?: ?([0-9])| ([A-Za-z])) ?([0-9A-Za-z])", r"\\frac{\1\2}{\3}"),
        (r"\\frac ?([0-9]) ?\{", r"\\frac{\1}{"),
        (r"(\\frac ?\{[^{}]*\}) ?([0-9A-Za-z])", r"\1{\2}"),
        (r"\{([^{}]+)\\choose(?![A-Za-z])([^{}]+)\}", r"\\binom{\1}{\2}"),
        (r"\\sqrt ?([0-9])|\\sqrt ([A-Za-z](?![A-Za-z])|\\pi(?![A-Za-z]))", r"\\sqrt{\1\2}"),
        (r"\\sqrt ?(\[[^\]]*\])? ?\(((?:[^()]|\([^()]*\))*)\)", r"\\sqrt\1{\2}"),
        (r"(?<=\}) +(?=\{)", ""),
        (r"\^ ?(?:\\circ|\{ ?\\circ ?\})|\\degree", " degrees "),
        (
            r"(\\(?:sin|cos|tan|cot|sec|csc)(?: ?\^ ?\{?[0-9]\}?)?) ?[({]? ?([0-9.]+) degrees ?[)}]?",
            r"\1(\\frac{\2\\pi}{180})",
        ),
        (r"\\([%$&#])", r"\1"),
        (r"\\langle", "("),
        (r"\\rangle", ")"),
        (r"\\l?vert(?![A-Za-z])|\\rvert(?![A-Za-z])", "|"),
        (r"\\varnothing|\\\{ ?\\\}", r"\\emptyset"),
        (r"(?<=[0-9)])(?!x(?<=^0x)[0-9A-Fa-f]+$) ?[xX*] ?(?=[0-9(])", r"\\times "),
        (r"(?:\b(?:US|CA|AU?|C))?\$|(?i:^(?:USD|EUR|GBP|Rs\.?|US) ?(?=[-0-9]))", ""),
        (r"\*\*", "^"),
        (r"\^ ?\(([^()]*)\)", r"^{\1}"),
        (r"\^ ?(-[0-9]+)", r"^{\1}"),
        (r"\\(sin|cos|tan) ?\^ ?\{ ?-1 ?\} ?", r"\\arc\1 "),
        (r"(?<=[0-9]) ?\^ ?\{? ?(st|nd|rd|th) ?\}?(?![A-Za-z])", r"\1"),
        (r"^- ?\( ?([0-9./]+|\\frac\{[0-9]+\}\{[0-9]+\}) ?\)$", r"-\1"),
        (r"(?<=[)\]]) ?U ?(?=[(\[])", r"\\cup "),
        (r" ?\\pmod ?(?:\{([^{}]*)\}|([0-9A-Za-z]))", r" (mod \1\2)"),
        (r"(?<=\\equiv)(.*?) ?\(? ?(?:\\b?mod|\bmod) ?\{?([0-9]+|[a-z])\}? ?\)?$", r"\1 (mod \2)"),
        (r"(?<![\\A-Za-z])log_?(2|10) ?(?=\()", r"\\log_{\1}"),
        (r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|ln|log|exp)(?= ?[({^\\]| [0-9a-z](?![A-Za-z]))", r"\\\1"),
        (r"(?<![\\A-Za-z])(gcd|lcm)(?= ?\()", r"\\\1"),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
    )
)


def spelling(answer: str) -> str:
    r"""Spells an answer for comparison.

    Returns:
        Its spelling, "" for ``ERR`` and the empty answer.
    """
    text = " ".join(answer.translate(_UNICODE).split())
    if len(text) > MAX_LENGTH:
        return text
    written, text = "", _unwrapped(text)
    while text not in (written, ERROR):
        written = _rewritten(text)
        text = _unwrapped(written)  # what a dollar sign or a font hid, as in "5.$"
    return "" if text == ERROR else _with_point(text, "€" in answer)


def _rewritten(text: str) -> str:
    """Writes alike what is the same."""
    while _INNER_FONT.search(text):
        text = _INNER_FONT.sub(_of_font, text)
    text = _GROUPED_BY_POINTS.sub(_ungrouped, _GROUPED.sub(_ungrouped, text))
    text = _BRACED_COMMA.sub(r"\1.\2", text)
    text = re.sub("[¼-¾⅐-⅞]", lambda match: _fraction(match[0]), text)
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda match: f"^{{{_plain(match[0])}}}", text)
    text = re.sub("[₀-₉]+", lambda match: f"_{{{_plain(match[0])}}}", text)
    text = re.sub(r"(?<![\\A-Za-z])sqrt(?![A-Za-z])", "√", text)
    text = re.sub(r"√ ?(?:\(([^()]*)\)|([0-9.]+|[A-Za-z]))", r"\\sqrt{\1\2}", text)
    for pattern, new in _REWRITTEN:
        text = pattern.sub(new, text)
    text = re.sub(
        r"(?<![A-Za-z0-9\\.])([0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?(-?[0-9]+)(?![A-Za-z0-9.])",
        r"\1 \\cdot 10^{\2}",
        text,
    )
    return " ".join(text.split())


def _unwrapped(text: str) -> str:
    """Takes off what surrounds the whole of an answer."""
    while match := _WRAPPER.fullmatch(text):
        text = match[match.lastindex or 0].strip()
    return text


def _with_point(text: str, euros: bool) -> str:
    """Writes a decimal comma as a point, where the comma cannot stand between two values of a list.

    It is one in 1.234,56 and 3,05, and before a unit of measurement, as in 3,5 km; but 3,5 may be two values.
    """
    value, unit = quantity(text)
    if (match := _COMMA.fullmatch(value)) is None:
        return text
    names = re.findall("[A-Za-zµμ]+", unit)
    measured = euros or (unit and all(map(_MEASURE.fullmatch, names)))
    if not measured and "." not in match["whole"] and not re.match("0[0-9]", match["decimals"]):
        return text
    return f"{match['before']}{match['whole'].replace('.', '')}.{match['decimals']}{text[len(value) :]}"


def _of_font(match: re.Match[str]) -> str:
    """What is set as text; a single letter behind something is a unit, not a variable."""
    text = match[1].strip()
    return (
        f" unit {text} " if match.start() and len(text) == 1 and _UNIT_NAME.fullmatch(text) else f" {text} "
    )


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")


def _fraction(sign: str) -> str:
    above, below = _plain(sign).split("⁄")
    return rf" \frac{{{above}}}{{{below}}}"


def _ungrouped(match: re.Match[str]) -> str:
    return re.sub("[^0-9]", "", match[0])


# --- numbers --------------------------------------------------------------------------------------------

_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?:[-+]\ ?)*)
    (?: (?P<whole>[0-9]+)\ ?\\frac\ ?\{{(?P<above>[0-9]+)\}}\ ?\{{(?P<below>[0-9]+)\}}
      | (?P<units>[0-9]+)\ (?P<half>[0-9]+)/(?P<of>[0-9]+)
      | \\frac\ ?\{{\ ?(?P<top>[-+]?\ ?{_DECIMAL})\ ?\}}\ ?\{{\ ?(?P<bottom>[-+]?\ ?{_DECIMAL})\ ?\}}
      | (?P<left>{_DECIMAL})\ ?/\ ?(?P<right>[-+]?{_DECIMAL})
      | (?P<first>[0-9]+)\ ?:\ ?(?P<second>[0-9]+)
      | (?P<before>[0-9]*)\.(?P<steady>[0-9]*)\\overline\ ?\{{(?P<recurring>[0-9]+)\}}
      | (?P<decimal>{_DECIMAL})
        (?:\ ?(?:\\times|\\cdot)\ ?10\ ?\^\ ?(?:(?P<power>[-+]?[0-9]+)|\{{(?P<braced>[-+]?[0-9]+)\}}))?
    )
    """,
    re.VERBOSE,
)
_ARITHMETIC = re.compile(r"(?:[0-9.\s()\[\]{}+*/-]|\\(?:frac|times|cdot|div)(?![A-Za-z]))+")


def number(text: str, arithmetic: bool = False) -> Fraction | None:
    r"""Reads a plain number: 12, -3.5, 2/3, \frac{2}{3}, 1 1/2, 3:2, 6.02 \cdot 10^{23}.

    Returns:
        The number; None if the text is something else.

    Raises:
        NoAnswerError: it is a quotient that comes out whole.
        UnreadableError: it is a quotient by zero, or too large to be written out.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    try:
        found, quotient = _value(part)
    except ZeroDivisionError:
        raise UnreadableError from None
    if quotient and found.denominator == 1 and not arithmetic:
        raise NoAnswerError
    return -found if part["sign"].count("-") % 2 else found


def _value(part: dict[str, str | None]) -> tuple[Fraction, bool]:
    """The value of a number without its sign, and whether it is written as a quotient."""
    if (whole := part["whole"] or part["units"]) is not None:
        above, below = part["above"] or part["half"], part["below"] or part["of"]
        return Fraction(whole) + Fraction(f"{above}/{below}"), False
    top, bottom = part["top"] or part["left"], part["bottom"] or part["right"]
    if top is not None and bottom is not None:
        return Fraction(top.replace(" ", "")) / Fraction(bottom.replace(" ", "")), True
    if part["first"] is not None and part["second"] is not None:
        return Fraction(f"{part['first']}/{part['second']}"), False
    if (recurring := part["recurring"]) is not None:
        steady = part["steady"] or ""
        digits = Fraction(f"{part['before'] or 0}.{steady or 0}")
        return digits + Fraction(int(recurring), (10 ** len(recurring) - 1) * 10 ** len(steady)), False
    exponent = int(part["power"] or part["braced"] or 0)
    if abs(exponent) > _MAX_EXPONENT:
        raise UnreadableError
    return Fraction(part["decimal"] or 0) * Fraction(10) ** exponent, False


def written(value: Fraction) -> str:
    """Writes a number: as an integer or a decimal where it has at most 12 digits behind the point, or a/b.

    Returns:
        The same text for the same number.
    """
    for digits in range(13):
        shifted = value * 10**digits
        if shifted.denominator == 1:
            text = str(abs(shifted.numerator)).zfill(digits + 1)
            point = len(text) - digits
            return "-" * (value < 0) + text[:point] + "." * (digits > 0) + text[point:]
    return f"{value.numerator}/{value.denominator}"


def is_arithmetic(text: str) -> bool:
    """Tells whether a spelling is arithmetic with plain numbers that is still to be done.

    Returns:
        Whether it holds nothing but numbers, brackets, and operators for sums, differences, products and
        quotients.
    """
    if _ARITHMETIC.fullmatch(text) is None or re.search("[0-9]", text) is None:
        return False
    bare = re.sub(r"[^(){}\[\]]", "", text)
    while (fewer := re.sub(r"\(\)|\{\}|\[\]", "", bare)) != bare:
        bare = fewer
    return not bare


# --- words, choices, dates and times --------------------------------------------------------------------

_CHOICE = re.compile(r"(?i:(?:option|choice)\s*)?[(\[]?\s?([A-Ja-j])\s?[)\]]?[.:]?")
_OTHER = r"(?!and\b|or\b|.*[\s(\[][A-J][)\]:])"  # choice beside the first one
_CHOSEN = re.compile(
    rf"[(\[]?([A-J])[)\]][.:]?\s+{_OTHER}[^\s+\-*/=^_\\<>,;&|].*|([A-J])(?:\.\s+{_OTHER}[0-9A-Z]|:\s+{_OTHER}[0-9A-Za-z]).*"
)
_ELEMENT = (
    "A[glrsu]|B[aeir]?|C[adelorsu]?|Eu|Fe?|G[ade]|H[eg]?|I[nr]?|Kr?|L[ai]|M[gno]|N[abdei]?|Os?|P[bdtu]?"
    "|R[abehu]|S[bceimnr]?|T[ehil]|U|V|W|Xe|Yb?|Z[nr]"
)
_CHEMICAL = re.compile(
    rf"(?=.*(?:[2-9]|1[0-9]|\^))(?:(?:{_ELEMENT})"
    r"(?: ?_ ?(?:\{[1-9][0-9]*\}|[1-9][0-9]*) ?|[1-9][0-9]*)?)+"
    r"(?: ?\^ ?(?:\{[0-9]?[-+]\}|[0-9]?[-+]))?"
)
_GROWTH = re.compile(r"(?:\\mathcal ?\{O\}|\\Theta|\\Omega|[OΘΩ]) ?\(.+\)")
_CODED = re.compile("0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+")
ROW = re.compile(r"[0-9]+(?:\.[0-9]+)*(?: [0-9]+(?:\.[0-9]+)*)+|[0-9]+(?:\.[0-9]+){2,}")
"""Numbers in a row, as 1 2 3 and 192.168.1.1, which are neither a product nor one number."""
_RATIO = re.compile("[0-9]+(?: ?: ?[0-9]+){2,}")
_LETTERS = r"[^\W\d_]"
_WORDS = re.compile(rf"{_LETTERS}(?:{_LETTERS}|[ ,.'-])*")
_LONG_WORD = re.compile(_LETTERS + "{4}")
_FACTORS = re.compile("[abc]{2,3}|[kmn]{2,3}|[pqrs]{2,3}|[xyz]{2,3}", re.IGNORECASE)
PAIR = re.compile("(?!as|at|by|my|us)[abcfghjkmnpqrstuvwxyz]{2}")
"""Two letters that are a product, as cn: neither words nor constants, and no units."""
TRIPLE = re.compile("[xyz]{3}")
"""Three letters that are a product beside mathematics, as in 2xyz; alone they may be an angle or an order."""
_NO_WORD = re.compile(f"[bcfghjklmnpqrstvwxz]{{3}}|{TRIPLE.pattern}")
"""Three letters that may be a product, as in 2mgh, and are no unit of what stands right before them."""
_MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
_MONTH = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _MONTHS)})\.?"
_DAY, _YEAR = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?", r"(?:,? ?(?P<year>[0-9]{4}))?"
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (rf"{_MONTH} {_DAY}{_YEAR}", rf"{_DAY} (?:of )?{_MONTH}{_YEAR}")
)
_NUMERIC_DATE = re.compile("[0-9]{1,4}([-/])[0-9]{1,2}\\1[0-9]{1,4}")
_ORDINAL = re.compile("[0-9]+(?:st|nd|rd|th)")
_IN_BASE = re.compile(r"([0-9]+|[0-9A-Fa-f]+(?= ?_ ?\{1[1-6]\})) ?_ ?(?:\{([0-9]+)\}|([0-9]))")
_HALF_OF_DAY = r"\s?(?P<half>[ap])\.?\s?m\.?"
_TIMES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"0?(?P<hour>[0-9]{{1,2}}):(?P<rest>[0-5][0-9](?::[0-5][0-9])?)(?:{_HALF_OF_DAY})?",
        rf"0?(?P<hour>[0-9]{{1,2}})(?P<rest>){_HALF_OF_DAY}",
    )
)


def text_form(text: str) -> str | None:
    """Writes a choice, words, a date, a time, numbers in a row or in another base, whatever their case.

    Returns:
        The same text for what is the same; None if it is none of these.
    """
    if match := _CHOICE.fullmatch(text) or _CHOSEN.fullmatch(text):
        return (match[1] or match[2]).upper()
    if any(kind.fullmatch(text) for kind in (_NUMERIC_DATE, _ORDINAL, ROW)):
        return text
    if match := _IN_BASE.fullmatch(text):
        return f"{match[1].upper()}_{{{match[2] or match[3]}}}"
    for pattern in _TIMES:
        if match := pattern.fullmatch(text):
            half = f" {match['half'].lower()}m" if match["half"] else ""
            return f"{int(match['hour'])}:{match['rest'] or '00'}{half}"
    if _GROWTH.fullmatch(text):
        return re.sub(r"\\(?:mathcal|cdot)|[\\{} ]", "", text)
    if _CHEMICAL.fullmatch(text):
        return re.sub("[_{} ]", "", text).casefold()
    if _CODED.fullmatch(text):
        return text.lower()
    if _RATIO.fullmatch(text):
        parts = [int(part) for part in text.split(":")]
        return ":".join(str(part // (math.gcd(*parts) or 1)) for part in parts)
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            month = next(name for name in _MONTHS if name.lower().startswith(match["month"].lower()[:3]))
            return f"{int(match['day'])} {month}" + (f" {match['year']}" if match["year"] else "")
    if not _is_words(text):
        return None
    small = text.casefold()
    if PAIR.fullmatch(small) and not _UNIT_NAME.fullmatch(small):
        return None if small == text else text.upper()  # NC is no product
    return small


def _is_words(text: str) -> bool:
    """Whether a spelling is words, not a product of letters, to which "silent" would equal "listen"."""
    if _WORDS.fullmatch(text) is None:
        return False
    if _LONG_WORD.search(text) or len(text) == 1:
        return True
    runs = re.findall(f"{_LETTERS}+", text)
    joined = {"and", "or"}.intersection(run.lower() for run in runs)
    alone = any(len(run) == 1 for run in runs)
    return not joined and not alone and "," not in text and _FACTORS.fullmatch(text) is None


# --- quantities -----------------------------------------------------------------------------------------

_UNIT_NAME = re.compile(
    "[nuµμmcdk]?m|in|ft|yd|mi|[nuµμmk]?g|lbs?|oz|t|m?s|secs?|mins?|h|hrs?|d|wk|yrs?|ha|[mcd]?[lL]|gal|qt|pt"
    "|k?N|[kM]?[JWVA]|mA|[CFK]|[kM]?Hz|[kM]?Pa|atm|mol|k?cal|eV|k?mph|kph|rad|deg|sq|cu"
    "|[rbw]pm|[fb]ps|pp[mb]|pts|[km]gs|[ck]ms|mls|kmh|k[wW]h|sqm"
)
_MEASURE = re.compile(rf"{_UNIT_NAME.pattern}|percent|degrees?|euros?|EUR|unit")
_NO_UNIT = re.compile(
    "and|not|less|than|more|least|most|times|plus|minus|over|mod|million|thousand|hundred|billion|trillion"
    "|dozen|half|quarter|squared|cubed|factorial|sin|cos|tan|cot|sec|csc|log|exp|choose|base|remainder|for"
    "|some|any|all|where|with|when|which|since|because|but|the|are|was|solutions?"
    "|above|below|under|north|south|east|west|right|off|ago|decrease|loss|fewer|noon|midnight",
    re.IGNORECASE,
)
_SIGN_OF_FIGURE = re.compile(r"\\(?:measured|spherical)?(?:angle|triangle|square|odot|circ)$")
_ATOM = r"(?:%|[A-Za-zµμ]+\.?)(?: ?\^ ?(?:\{-?[0-9]\}|-?[0-9]))?"
_UNIT = re.compile(rf"{_ATOM}(?:(?: ?/ ?| ?\\cdot ?| ){_ATOM})*")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"({_DECIMAL}) ({'|'.join(_SCALES)})", re.IGNORECASE)


def quantity(text: str) -> tuple[str, str]:
    r"""Splits a quantity: 12 apples, 60 km/h, 5 m^2, 30 degrees, 50%.

    Returns:
        What is measured and its unit, "" for none.
    """
    for place in re.finditer(r"(?<=[0-9)}\]]) ?|(?<=[A-Za-z]) ", text):
        value, unit = text[: place.start()], text[place.end() :]
        if _SIGN_OF_FIGURE.search(value):
            continue
        if value and unit and _UNIT.fullmatch(unit) and _measures(unit, value, place[0] == " "):
            return value, unit
    return text, ""


def _measures(unit: str, value: str, apart: bool) -> bool:
    r"""Whether words behind a value are its unit, not part of a formula as in 5m, 2b d^{2} and 3 \\pi r."""
    names = re.findall("[A-Za-zµμ]+", unit)
    if not all(map(_is_unit, names)):
        return False
    if names and _NO_WORD.fullmatch(names[0]) and not _UNIT_NAME.fullmatch(names[0]):
        return apart and value[-1].isdigit()
    if not names or len(names[0]) > 1:
        return True
    return apart and re.search(r"(?<![\\A-Za-z])[A-Za-z]|[A-Za-z]$", value) is None


def _is_unit(name: str) -> bool:
    return bool(_UNIT_NAME.fullmatch(name)) or (len(name) > 2 and not _NO_UNIT.fullmatch(name))


def scaled(text: str) -> Fraction | None:
    """Reads a number with a word for its scale, such as 2.5 million.

    Returns:
        The number; None if the text is something else.
    """
    match = _SCALE.fullmatch(text)
    return Fraction(match[1]) * 10 ** _SCALES[match[2].lower()] if match else None
