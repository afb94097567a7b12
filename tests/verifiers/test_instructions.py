"""Each kind of instruction: a text that follows it and one that nearly does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Sample, Verdict, get
from r1zero.verifiers.instructions import loose_forms
from r1zero.verifiers.instructions.kinds import KINDS, sentences
from r1zero.verifiers.instructions.languages import is_language

# kind, its arguments, a text that follows, a text that does not
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["sun", "moon"]}, "The Sun and the moon.", "The sun and the mood."),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "at least"}, "Go go.", "Go on."),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "less than"}, "Go on.", "Go, go!"),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, "It rained in the train.", "Some Rain."),
    ("keywords:letter_frequency", {"letter": "z", "let_frequency": 2, "let_relation": "at least"}, "Zoo ZZ", "Zoo"),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 1, "let_relation": "less than"}, "No.", "No!"),
    ("language:response_language", {"language": "de"}, "Das ist ein Haus und es ist nicht groß.", "This is a house."),
    ("language:response_language", {"language": "hi"}, "यह एक घर है और यह बड़ा नहीं है।", "हे एक घर आहे आणि ते मोठे नाही."),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"},
     "Dr. Who is in. He waits.", "One. Two! Three?"),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "Yes. No.", "3.5 e.g. this"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\nTwo", "One\n\nTwo"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "One\n***\nTwo\n***\n", "One\n***\n***\nTwo"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one, two three", "one two"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "one two", "one two three"),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
     "First.\n\nThen, more.", "Then.\n\nFirst."),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "then"},
     "\"Then\" it is", "Then\n\nthen"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] of [town]", "[name] of (town)"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n\nP.S. Call me.", "Bye.\n\nPlease call."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S Call.", "Bye.\nP.S. Call."),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n* two", "* one\n* two\n- three"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "**bold**\n- one", "**bold**"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is perhaps."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**", "*one* and **two"),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2},
     "SECTION 1\na\nSECTION 2\nb", "SECTION 1\na\nSECTION b"),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<< >>\ntext"),
    ("combination:two_responses", {}, "One.******Two.", "One.******One."),
    ("combination:two_responses", {}, "One.\n******\nTwo.", "One.******Two.******Three."),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. I said it.", "I said: say it."),
    ("startend:end_checker", {"end_phrase": "Is that all?"}, "So. Is that all?", "Is that all? Yes."),
    ("startend:quotation", {}, '"Quoted."', '"Quoted".'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     "NASA and ESA", "NASA and Esa"),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "NASA", "A B"),
    ("change_case:english_capital", {}, "THIS IS IT AND IT IS FOR YOU.", "THIS IS IT and IT IS FOR YOU."),
    ("change_case:english_capital", {}, "THE END OF IT", "DAS IST NICHT DAS ENDE"),
    ("change_case:english_lowercase", {}, "this is it and it is for you.", "This is it and it is for you."),
    ("punctuation:no_comma", {}, "One and two", "One, two"),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one two three", "one two three four"),
    ("count:unique_word_count", {"N": 3}, "one two, three two", "one two One"),
    ("count:numbers", {"N": 2}, "3 of 12", "3 of 12 or 13"),
    ("format:no_whitespace", {}, "NoSpace", "No Space"),
]  # fmt: skip


def judged(text: str, data: dict[str, Any], **options: Any) -> Verdict:
    problem = Problem(id="1", prompt="", data=data)
    return get("instructions")(Sample(completion=text, problem=problem), options)


def row(*kinds: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"instruction_id_list": [kind for kind, _ in kinds], "kwargs": [given for _, given in kinds]}


@pytest.mark.parametrize(("kind", "given", "good", "bad"), CASES, ids=lambda value: str(value)[:40])
def test_a_text_that_follows_and_one_that_nearly_does(kind: str, given: dict[str, Any], good: str, bad: str) -> None:
    assert judged(good, row((kind, given))).outcome is Outcome.CORRECT
    assert judged(bad, row((kind, given))).outcome is Outcome.WRONG


def test_all_25_kinds_of_the_paper_and_four_more_are_tried() -> None:
    assert {case[0] for case in CASES} == set(KINDS)
    assert len([kind for kind in KINDS if not kind.startswith(("count:", "format:"))]) == 25


def test_all_of_a_row_must_hold_and_the_share_is_a_setting() -> None:
    data = row(("punctuation:no_comma", {}), ("startend:quotation", {}), ("count:numbers", {"N": 0, "extra": None}))
    assert judged('<think>a, b</think>"It is."', data).correct
    verdict = judged("It is.", data)
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.0)
    assert verdict.reason == "not followed: 2 startend:quotation"
    assert judged("It is.", data, partial_credit=True).score == pytest.approx(2 / 3)
    assert judged("<think>It is", data).outcome is Outcome.UNPARSEABLE


def test_loose_forgives_a_first_or_last_line_and_asterisks() -> None:
    assert loose_forms("a\n*b*\nc") == ["a\n*b*\nc", "a\nb\nc", "*b*\nc", "b\nc", "a\n*b*", "a\nb", "*b*", "b"]
    data = row(("startend:quotation", {}))
    for text in ('Sure:\n"It is."', '"It is."\nDone.', 'Sure:\n*"It is."*\nDone.'):
        assert judged(text, data).outcome is Outcome.WRONG
        assert judged(text, data, loose=True).correct
    assert judged('"It is." Done.', data, loose=True).outcome is Outcome.WRONG
    assert judged("one line", row(("punctuation:no_comma", {})), loose=True).correct
    assert judged("a, line", row(("punctuation:no_comma", {})), loose=True).outcome is Outcome.WRONG


def test_rows_may_hold_their_fields_as_text() -> None:
    data = row(("punctuation:no_comma", {}))
    assert judged("x", {key: json.dumps(value) for key, value in data.items()}).correct


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "instruction_id_list"),
        ({"instruction_id_list": ["no:such"], "kwargs": [{}]}, "'no:such' is not known; known: change_case"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "an object for each of the 1"),
        ({"instruction_id_list": ["count:numbers"], "kwargs": [{}]}, "count:numbers: "),
        ({"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "xx"}]}, "'xx' is not known"),
        (row(("length_constraints:number_words", {"num_words": 1, "relation": "about"})), "relation 'about'"),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error(data: dict[str, Any], says: str) -> None:
    verdict = judged("A text.", data)
    assert verdict.outcome is Outcome.ERROR
    assert says in verdict.reason


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two.", 2), ("Mr. Smith came. He left.", 2), ("It costs 3.50 now.", 1), ("Really?! Yes...", 2),
        ("No end", 1), ("", 0), ("He said \"Go.\" She went.", 2), ("J. S. Bach wrote it.", 1),
    ],
)  # fmt: skip
def test_sentences_are_counted(text: str, count: int) -> None:
    assert len(sentences(text)) == count


LANGUAGES = {
    "en": "The cat sat on the mat and it was not happy with this.",
    "fr": "Le chat est sur la table et il ne veut pas descendre.",
    "es": "El gato está en la mesa y no quiere bajar por la mañana.",
    "pt": "O gato está na mesa e não quer descer do seu lugar.",
    "it": "Il gatto è sul tavolo e non vuole scendere con gli altri.",
    "nl": "De kat zit op het bed en wil niet naar buiten.",
    "pl": "Kot jest na stole i nie chce się ruszyć.",
    "vi": "Con mèo ở trên bàn và nó không muốn đi với tôi.",
    "fi": "Kissa on pöydällä ja se ei halua tulla alas.",
    "sw": "Paka yuko juu ya meza na hataki kushuka kwa sasa.",
    "ru": "Кот сидит на столе и не хочет уходить, что это такое.",
    "bg": "Котката е на масата и не иска да слезе от нея.",
    "uk": "Кіт сидить на столі і не хоче йти, що це таке.",
    "ar": "القط على الطاولة ولا يريد أن ينزل من هذا المكان",
    "fa": "گربه روی میز است و نمی خواهد که از آن پایین بیاید",
    "ur": "بلی میز پر ہے اور نیچے نہیں آنا چاہتی ہے",
    "zh": "猫在桌子上，它不想下来。",
    "ja": "猫はテーブルの上にいて、降りたくありません。",
    "ko": "고양이가 탁자 위에 있고 내려오고 싶어하지 않습니다.",
    "th": "แมวอยู่บนโต๊ะและไม่อยากลงมา",
    "bn": "বিড়ালটি টেবিলের উপর আছে এবং নামতে চায় না।",
    "mr": "मांजर टेबलावर आहे आणि ते खाली येत नाही.",
    "ne": "बिरालो टेबलमा छ र यो तल आउन चाहँदैन।",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_is_told_from_the_others(language: str) -> None:
    told = {other for other in LANGUAGES if is_language(LANGUAGES[language], other)}
    assert told == {language}
