"""Units in words: what they measure and how they convert. A unit may be dropped from an answer, but not changed.

A unit reads as dimensions to powers and an exact factor: `square feet` and `ft^2` are the same, `180 minutes` equals
`3 hours`, `km` against `miles` is no match. A word that is no unit (`apples`, `ways`) is a dimension of its own.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

Dimensions = frozenset[tuple[str, int]]

_TABLE: dict[str, tuple[str, str]] = {  # dimension, then its names with factors to the dimension's first unit
    "length": (
        "length",
        "m meter metre:1 km kilometer kilometre:1000 cm centimeter centimetre:1/100 mm millimeter millimetre:1/1000 "
        "um micron micrometer:1/1000000 nm nanometer:1/1000000000 in inch inche:127/5000 ft foot feet:381/1250 "
        "yd yard:1143/1250 mi mile:201168/125",
    ),
    "time": (
        "time",
        "s sec second:1 ms millisecond:1/1000 min minute:60 h hr hour:3600 day:86400 week:604800 month:1month "
        "year yr:1year",
    ),
    "mass": (
        "mass",
        "kg kilogram:1 g gram gm:1/1000 mg milligram:1/1000000 lb pound:45359237/100000000 "
        "oz ounce:45359237/1600000000 ton:1ton",
    ),
    "dollar": ("dollar", "$ dollar usd buck:1 cent:1/100"),
    "euro": ("euro", "€ euro eur:1"),
    "pounds sterling": ("pounds sterling", "£ gbp:1"),
    "yen": ("yen", "¥ yen:1"),
    "rupee": ("rupee", "₹ rupee:1"),
    "volume": ("volume", "l liter litre:1 ml milliliter millilitre:1/1000 gallon gal:1gallon quart:1/4gallon"),
    "angle": ("angle", "rad radian:1"),
    "energy": ("energy", "j joule:1 kj kilojoule:1000 erg:1/10000000 ev:1ev cal calorie:1cal kcal:1000cal"),
    "force": ("force", "n newton:1 dyne:1/100000"),
    "power": ("power", "w watt:1 kw kilowatt:1000 mw:1/1000"),
    "frequency": ("frequency", "hz hertz:1 khz:1000 mhz:1000000"),
    "pressure": ("pressure", "pa pascal:1 kpa:1000 atm:1atm"),
    "temperature": ("temperature", "k kelvin:1"),
    "charge": ("charge", "coulomb:1"),
    "voltage": ("voltage", "v volt:1"),
    "area": ("area", "acre:1 hectare:1hectare"),
}


def _load() -> dict[str, tuple[str, Fraction]]:
    table = {}
    for dimension, words in _TABLE.values():
        for entry in re.findall(r"([^:]+):(\S+)\s*", words):
            factor = re.fullmatch(r"([\d/]+)([a-z]*)", entry[1])
            assert factor is not None
            for name in entry[0].split():
                table[name] = (f"{dimension} {factor[2]}".strip(), Fraction(factor[1]))
    return table


UNITS = _load()
_ALIASES = {
    "mph": "mile / hour",
    "kph": "km / hour",
    "kmh": "km / hour",
    "fps": "feet / second",
    "sq": "square",
    "cubed": "^3",
    "squared": "^2",
    "per": "/",
}
# Words that name the answer's sort without measuring it.
_IDLE = {"unit", "of", "the", "a", "an", "total", "each", "away", "ago", "us", "u.s.", "long", "old", "place"}
_NO_PLURAL = {"does", "is", "was", "has", "this", "always", "yes", "plus", "minus", "axis", "isosceles", "us", "thus"}
_TOKEN = re.compile(r"[a-z€£¥₹$.]+|\^\s*\{?\s*(-?\d+)\s*\}?|[/*·()]|\d+")
# A text with one of these is a sentence or a hedge, never a unit.
NOT_A_UNIT = re.compile(
    r"\b(or|and|not|to|either|neither|nor|if|else|any|other|no|none|except|but|between|than|maybe|approximately|about|"
    r"is|are|was|be|because|since|where|when|for|all|with|as|answer|least|most|more|less|import|lambda|wrong|incorrect|false|invalid|possibly|perhaps|probably|unlikely|"
    r"approx|roughly|guess|unsure|minus|plus|times|half|twice|double|triple|dozen|base|binary|hex|octal|modulo|unless|"
    r"choose|factorial|negative|positive|inverse|root|"
    # Words that scale the value, and words that judge it.
    r"halves|thirds?|quarters|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?|twelfths?|twentieths?|"
    r"hundredths?|thousandths?|millionths?|pairs?|dozens|scores?|gross|lakhs?|crores?|myriads?|tens|hundreds|thousands|"
    r"millions|billions|never|rejected|extraneous|excluded|discarded|impossible|instead|rather|cannot|without|"
    r"reciprocal|opposite|roots|factorials|squares|cubes|maybe|doubtful|unknown|only if|nearly|almost|around)\b"
    r"|[-=<>!?_\"']"
)


def is_unit_word(word: str) -> bool:
    """True for a name in the table, in any number."""
    word = word.lower()
    return word in UNITS or singular(word) in UNITS or word in _ALIASES or singular(word) == "unit"


def singular(word: str) -> str:
    """Without the plural s: `days` is `day`, `class` stays."""
    if len(word) < 3 or not word.endswith("s") or word.endswith("ss") or word in _NO_PLURAL:
        return word
    return word[:-1]


@lru_cache(maxsize=4096)
def read(text: str) -> tuple[Dimensions, Fraction] | None:
    """Dimensions and factor of a unit in words; None when the text cannot be a unit.

    `square cm` -> ({length: 2}, 1/10000); `m s^{-1}` and `m/s` -> ({length: 1, time: -1}, 1); `units` -> ({}, 1).
    """
    text = text.strip().rstrip(".").lower()
    if not text or len(text) > 60 or NOT_A_UNIT.search(re.sub(r"\^\s*\{?\s*-?\d+\s*\}?", "", text)):
        return None
    words: list[str] = []
    at = 0
    for found in _TOKEN.finditer(text):
        if text[at : found.start()].strip(" ,~"):
            return None
        at = found.end()
        words += _ALIASES.get(found.group(), found.group()).split()
    if text[at:].strip(" ,~") or len(words) > 12:
        return None
    dimensions: dict[str, int] = {}
    factor, sign, power, last = Fraction(1), 1, 1, ""
    for word in words:
        if word == "/":
            sign, last = -1, ""
        elif word in ("*", "·", "(", ")"):
            continue
        elif word in ("square", "cubic"):
            power = 2 if word == "square" else 3
        elif word.startswith("^"):
            if not last or abs(exponent := int(re.sub(r"[^\d-]", "", word))) > 9:
                return None
            dimension, one = _one(last)
            # The unit has been counted once with `sign`: add what is missing to `exponent` of it.
            dimensions[dimension] = dimensions.get(dimension, 0) + sign * (exponent - 1)
            factor *= one ** (sign * (exponent - 1))
        elif word[0].isdigit():
            return None
        elif singular(word) in _IDLE:
            last, power = "unit", 1
        else:
            dimension, one = _one(word)
            dimensions[dimension] = dimensions.get(dimension, 0) + sign * power
            factor *= one ** (sign * power)
            last, power = word, 1
    return frozenset((name, count) for name, count in dimensions.items() if count and name != "unit"), factor


def _one(word: str) -> tuple[str, Fraction]:
    word = word.strip(".")
    if word in UNITS:
        return UNITS[word]
    word = singular(word)
    return UNITS.get(word, ("unit" if word == "unit" else f"word {word}", Fraction(1)))
