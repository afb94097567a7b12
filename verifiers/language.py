"""`language`: the share of the thinking's words that are in the target language's script (R1, stage 1)."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter

from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register

_LATIN = frozenset({"LATIN"})
_CYRILLIC = frozenset({"CYRILLIC"})
_HAN = frozenset({"CJK"})
SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ["en", "fr", "de", "es", "it", "pt", "nl", "pl", "cs", "sv", "da", "no", "fi", "tr", "vi", "id", "ro", "hu"],
        _LATIN,
    ),
    **dict.fromkeys(["ru", "uk", "bg", "sr"], _CYRILLIC),
    "zh": _HAN,
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    "ko": frozenset({"HANGUL", "CJK"}),
    "ar": frozenset({"ARABIC"}),
    "fa": frozenset({"ARABIC"}),
    "he": frozenset({"HEBREW"}),
    "el": frozenset({"GREEK"}),
    "hi": frozenset({"DEVANAGARI"}),
    "bn": frozenset({"BENGALI"}),
    "ta": frozenset({"TAMIL"}),
    "th": frozenset({"THAI"}),
}
# Scripts written without spaces: each character counts as one word.
_UNSPACED = frozenset({"CJK", "HIRAGANA", "KATAKANA", "THAI"})
# What is no language: code, formulas, LaTeX commands, links, tags.
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]{0,500}`|\$\$.*?\$\$|\$[^$\n]{0,500}\$|\\\[.*?\\\]|\\\(.*?\\\)|\\[A-Za-z]+|https?://\S+|</?\w{1,20}>",
    re.DOTALL,
)


@register(
    "language",
    judges="shaping",
    example=Sample(completion="<think>Two and two make four, so the answer is four.</think> <answer>4</answer>"),
)
def language(completion: str, *, target: str = "en", min_share: float = 0.9, whole: bool = False) -> Verdict:
    """Correct when at least `min_share` of the words are in the script of `target`; the score is the share itself.

    target: a language code (en, zh, ja, ko, ru, ar, …). whole: look at the whole completion; else at the think block,
    where there is one, as arXiv 2501.12948 section 2.3 does. Formulas, code, links and single letters (variables) are
    left out; a character of Chinese, Japanese or Thai counts as a word. A text with no words is unparseable.
    It goes by script alone: it cannot tell English from French, nor Chinese from the Chinese characters in Japanese,
    and says nothing of sense: one word repeated has a share of 1.
    """
    if target not in SCRIPTS:
        return Verdict(Outcome.ERROR, reason=f"option target {target!r} is none of {', '.join(sorted(SCRIPTS))}")
    counts = count_words(completion if whole else _thinking(completion))
    total = counts.total()
    if total == 0:
        return Verdict(Outcome.UNPARSEABLE, reason="no words to judge")
    inside = sum(count for script, count in counts.items() if script in SCRIPTS[target])
    share = inside / total
    scripts = ", ".join(f"{script.lower()} {count}" for script, count in counts.most_common(4))
    outcome = Outcome.CORRECT if share >= min_share else Outcome.WRONG
    return Verdict(outcome, score=share, reason=f"{inside} of {total} words fit {target!r} ({scripts})")


def _thinking(completion: str) -> str:
    _, opened, rest = completion.partition("<think>")
    return rest.partition("</think>")[0] if opened else completion


def count_words(text: str) -> Counter[str]:
    """Words of `text` by script. A word of several scripts counts for the script of its first letter."""
    counts: Counter[str] = Counter()
    for word in re.findall(r"[^\W\d_]+", unicodedata.normalize("NFKC", _NOT_PROSE.sub(" ", text))):
        scripts = [_script(char) for char in word]
        counts.update(script for script in scripts if script in _UNSPACED)
        spaced = [script for script in scripts if script not in _UNSPACED]
        if len(spaced) >= 2:
            counts[spaced[0]] += 1
    return counts


@functools.lru_cache(maxsize=4096)
def _script(char: str) -> str:
    """The first word of the character's Unicode name, which is its script: LATIN, CJK, HIRAGANA."""
    return unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
