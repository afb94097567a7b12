"""What a completion that was cut off at the token limit has committed itself to, by what stands behind its answer.

Half a text is not read as a whole one: the last number of half a sentence is no answer ("the total is 12" may go on
as "0"), and a box that more reasoning follows may be taken back. What counts is a closed answer tag; a complete box;
or a marker ("the final answer is") with its sentence complete. Behind the last two only the end of their sentence may
follow, and a phrase that ends a solution ("I hope it is correct."): more means that the reasoning was still going on.
"""

from __future__ import annotations

import re

_CLOSERS = r"[\s$.!*_)\]}\"'”’]|\\[\])]|\\end\{[a-z*]{1,12}\}|</answer>"
_SUFFIX = r"(?:\\?%|\^\s*\{?\s*\\circ\s*\}?|°|\\(?:text|mathrm|mbox)\s*\{[^{}\d]{1,40}\})"
_TIED = rf"(?:\s|\$|\\[,;!])*{_SUFFIX}?(?:{_CLOSERS})*"
_END = r"[.!]+(?=[\s\"'”’)*$]|\Z)|\n"
# The rest of the answer's own sentence: a unit in words, or why it is so; nothing that goes on reasoning.
_GOES_ON = (
    r"(?i)\b(?:or|but|and|then|not|no|wait|however|hmm+|actually|maybe|perhaps|if|unless|let|now|next|we|which means|"
    r"so|times|plus|minus|divided|multiplied|recheck|check|verify|except|until|when|before|after)\b|\?"
)
_REASON = r"(?i)[\s$*)\]}]*,?\s+(?:since|because|as)\s"
_IDLE = (
    r"(?i)(?:I\s+hope\s+(?:it|this|that)\s+(?:is\s+correct|helps)|hope\s+this\s+helps|(?:this|that)\s+is\s+"
    r"(?:the|our|my)\s+(?:final\s+)?answer|q\.?e\.?d|done|#+|-{3,}|\*+)[.!\s]*"
)
_RESTATED = r"(?i)\banswer\b"
_NOISE = r"[\s$*(){}]|\\(?:boxed|[()\[\]])|\.$"
_MAX_REST = 600


def is_closed(answer: str, rest: str, *, boxed: bool) -> bool:
    """Whether `rest`, all that follows an answer up to the cut, leaves it standing.

    boxed: `answer` stood in a box, which says by itself where it ends; else its sentence has to be complete.
    """
    if len(rest) > _MAX_REST:
        return False
    tied = re.match(_TIED, rest)
    after = rest[tied.end() :] if tied is not None else rest
    if not after.strip():
        return boxed or re.search(_END, rest) is not None
    sentence = re.search(_END, rest)
    if sentence is None:
        return False
    own, more = rest[: sentence.start()], rest[sentence.end() :]
    reason = re.match(_REASON, own)
    if reason is None and (re.search(_GOES_ON, own) or re.search(r"\d", own)):
        return False
    bare = re.sub(_NOISE, "", answer)
    return all(_leaves_standing(part, bare) for part in _sentences(more))


_FENCE = r"(?m)^[ \t]*(`{3,}|~{3,})([^\n]*)$"


def has_closed_fence(text: str) -> bool:
    """Whether a fenced block of the text is closed: a program, say, that is all there."""
    opened = ""
    for found in re.finditer(_FENCE, text):
        mark, info = found.groups()
        if not opened:
            opened = mark
        elif mark.startswith(opened) and not info.strip():
            return True
    return False


def _sentences(text: str) -> list[str]:
    """Sentence by sentence; a last one that is not complete ends with no mark and so is never idle."""
    parts, at = [], 0
    for found in re.finditer(_END, text):
        parts.append(text[at : found.end()])
        at = found.end()
    return [*parts, text[at:] + "\0" if text[at:].strip() else ""]


def _leaves_standing(sentence: str, answer: str) -> bool:
    """True for an end of a solution, and for the same answer said again ("The answer is 5.")."""
    if re.fullmatch(rf"(?:{_CLOSERS})*", sentence) or re.fullmatch(_IDLE, sentence.strip(" \t\n*$")):
        return True
    if "\0" in sentence or re.search(_GOES_ON, sentence):
        return False
    said = re.search(_RESTATED, sentence)
    return said is not None and answer in re.sub(_NOISE, "", sentence[said.end() :].strip())
