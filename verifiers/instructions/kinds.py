"""Each kind of instruction as a function of the text: does it follow? Source: arXiv 2311.07911, table 4, and the
parameters of its published rows; four kinds of IFBench (arXiv 2507.02833) at the end."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable

from r1zero.verifiers.instructions.languages import is_language

Kind = Callable[..., bool]
KINDS: dict[str, Kind] = {}


def _kind(name: str) -> Callable[[Kind], Kind]:
    def keep(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return keep


def _compare(count: int, wanted: int, relation: str) -> bool:
    """The rows' two relations: `at least` and `less than`."""
    if relation not in ("at least", "less than"):
        raise KeyError(f"relation {relation!r}")
    return count >= int(wanted) if relation == "at least" else count < int(wanted)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


_ABBREVIATION = re.compile(
    r"\b(?:mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|inc|ltd|co|fig|no|vol|e\.g|i\.e|a\.m|p\.m|u\.s|[A-Z])\.$", re.IGNORECASE
)


def sentences(text: str) -> list[str]:
    """Parts that end in `.`, `!` or `?` before a blank space; an abbreviation or an initial ends none."""
    found: list[str] = []
    held = ""
    for part in re.split(r"(?<=[.!?])[\"')\]*]{0,3}\s+|(?<=[。！？])", text.strip()):
        held = f"{held} {part}".strip() if held else part
        if not _ABBREVIATION.search(part):
            found.append(held)
            held = ""
    return [sentence for sentence in [*found, held] if any(char.isalnum() for char in sentence)]


@_kind("keywords:existence")
def has_keywords(text: str, *, keywords: list[str]) -> bool:
    return all(keyword.lower() in text.lower() for keyword in keywords)


@_kind("keywords:frequency")
def keyword_frequency(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    return _compare(text.lower().count(keyword.lower()), frequency, relation)


@_kind("keywords:forbidden_words")
def no_forbidden_words(text: str, *, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


@_kind("keywords:letter_frequency")
def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(text.lower().count(letter.lower()), let_frequency, let_relation)


@_kind("language:response_language")
def response_language(text: str, *, language: str) -> bool:
    return is_language(text, language)


@_kind("length_constraints:number_sentences")
def number_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    return _compare(len(sentences(text)), num_sentences, relation)


@_kind("length_constraints:number_paragraphs")
def number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """Paragraphs stand between lines of `***`; an empty one may stand at either end only."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1] if len(parts) > 2 else []
    return all(inner) and sum(map(bool, parts)) == int(num_paragraphs)


@_kind("length_constraints:number_words")
def number_words(text: str, *, num_words: int, relation: str) -> bool:
    return _compare(len(words(text)), num_words, relation)


@_kind("length_constraints:nth_paragraph_first_word")
def nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs stand between empty lines; the first word counts without quotes and what follows its punctuation."""
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    if len(parts) != int(num_paragraphs) or not 1 <= int(nth_paragraph) <= len(parts):
        return False
    start = parts[int(nth_paragraph) - 1].split()[0].lstrip("'\"")
    return re.split(r"[.,?!'\"]", start)[0].lower() == first_word.lower()


@_kind("detectable_content:number_placeholders")
def number_placeholders(text: str, *, num_placeholders: int) -> bool:
    return len(re.findall(r"\[[^\n\]]*\]", text)) >= int(num_placeholders)


@_kind("detectable_content:postscript")
def postscript(text: str, *, postscript_marker: str) -> bool:
    """A line or a part that begins with the marker, `P.S.` or `P.P.S`, blanks between its letters aside."""
    letters = [char for char in postscript_marker.lower() if char.isalnum()]
    pattern = r"\s?\.?\s?".join(map(re.escape, letters)) if "." in postscript_marker else re.escape(postscript_marker)
    return re.search(rf"(?<!\w){pattern}", text, re.IGNORECASE) is not None


@_kind("detectable_format:number_bullet_lists")
def number_bullets(text: str, *, num_bullets: int) -> bool:
    found = re.findall(r"^[ \t]*(?:\*[^*\n]|-).*$", text, re.MULTILINE)
    return len(found) == int(num_bullets)


@_kind("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    return any(f"My answer is {word}." in text for word in ("yes", "no", "maybe"))


@_kind("detectable_format:number_highlighted_sections")
def number_highlights(text: str, *, num_highlights: int) -> bool:
    found = re.findall(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*", text)
    return sum(bool(part.strip("*").strip()) for part in found) >= int(num_highlights)


@_kind("detectable_format:multiple_sections")
def multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter)}\s?\d+", text)) >= int(num_sections)


@_kind("detectable_format:json_format")
def json_format(text: str) -> bool:
    text = re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE).strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@_kind("detectable_format:title")
def title(text: str) -> bool:
    return any(found.strip(" <>") for found in re.findall(r"<<[^\n>]{1,500}>>", text))


@_kind("combination:two_responses")
def two_responses(text: str) -> bool:
    """Two different texts with six asterisks between them."""
    parts = [part.strip() for part in text.split("******")]
    inner_empty = any(not part for part in parts[1:-1])
    given = [part for part in parts if part]
    return not inner_empty and len(given) == 2 and given[0] != given[1]


@_kind("combination:repeat_prompt")
def repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@_kind("startend:end_checker")
def end_checker(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@_kind("startend:quotation")
def quotation(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@_kind("change_case:capital_word_frequency")
def capital_word_frequency(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    found = [word for word in re.findall(r"[^\W_]+(?:[-'’][^\W_]+)*", text) if word.isupper()]
    return _compare(len(found), capital_frequency, capital_relation)


@_kind("change_case:english_capital")
def english_capital(text: str) -> bool:
    return text.isupper() and is_language(text.lower(), "en")


@_kind("change_case:english_lowercase")
def english_lowercase(text: str) -> bool:
    return text.islower() and is_language(text, "en")


@_kind("punctuation:no_comma")
def no_comma(text: str) -> bool:
    return "," not in text


# IFBench


@_kind("count:word_count_range")
def word_count_range(text: str, *, min_words: int, max_words: int) -> bool:
    return int(min_words) <= len(text.split()) <= int(max_words)


@_kind("count:unique_word_count")
def unique_word_count(text: str, *, N: int) -> bool:  # noqa: N803  the rows' own name
    found = {word.strip(string.punctuation + " ") for word in text.lower().split()}
    return len(found - {""}) >= int(N)


@_kind("count:numbers")
def count_numbers(text: str, *, N: int) -> bool:  # noqa: N803  the rows' own name
    return len(re.findall(r"\b\d+\b", text)) == int(N)


@_kind("format:no_whitespace")
def no_whitespace(text: str) -> bool:
    return not any(char.isspace() for char in text.strip())
