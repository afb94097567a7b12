"""A verifier in ten lines: is the answer a palindrome of as many letters as the gold says?"""

from __future__ import annotations

from r1zero.verifiers import Outcome, Sample, Verdict, register


@register("palindrome", example=Sample(completion="<answer>abba</answer>", answer="4"))
def palindrome(completion: str, answer: str, *, ignore_case: bool = False) -> Verdict:
    """Correct when the last answer tag holds a palindrome of `answer` letters."""
    _, tag, text = completion.rpartition("<answer>")
    word = text.partition("</answer>")[0].strip()
    if not tag or not word:
        return Verdict(Outcome.UNPARSEABLE, reason="no answer tag with a word in it")
    word = word.lower() if ignore_case else word
    good = word == word[::-1] and str(len(word)) == answer
    return Verdict(Outcome.CORRECT if good else Outcome.WRONG, reason=f"{len(word)} letters", extracted=word)
