"""Which language a text is in: by its script, and among those that share one by letters and common words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_SCRIPTS = {
    "zh": "CJK", "ja": "KANA", "ko": "HANGUL", "th": "THAI", "he": "HEBREW", "el": "GREEK", "bn": "BENGALI",
    "ta": "TAMIL", "te": "TELUGU", "kn": "KANNADA", "gu": "GUJARATI", "pa": "GURMUKHI", "ml": "MALAYALAM",
    **dict.fromkeys(["hi", "mr", "ne"], "DEVANAGARI"), **dict.fromkeys(["ru", "uk", "bg"], "CYRILLIC"),
    **dict.fromkeys(["ar", "fa", "ur"], "ARABIC"),
    **dict.fromkeys(["en", "de", "fr", "es", "pt", "it", "nl", "pl", "fi", "vi", "sw", "tr", "sv", "id"], "LATIN"),
}  # fmt: skip
# Frequent short words, and letters that few other languages of the script have (`ß`), which count wherever they stand.
_LETTERS = frozenset("ßñ¿¡ãõłąęśżơưđạểộếığşåыэёіїєґъळةپچگژیٹڈڑںے")
_COMMON = {
    "en": "the of and to in is that it for was with as his on be at by this have from or you are not but they we an",
    "de": "der die das und ist nicht ein eine zu den mit sich des auf für im dem auch es als wie ich sie werden ß",
    "fr": "le la les des et est une du en que dans pour qui pas sur au plus par avec ce il elle sont nous vous c'est",
    "es": "el la los las de que y en un una es por con no se para su al lo como más pero está muy ñ ¿ ¡ del",
    "pt": "o os as de que e em um uma é por com não se para seu ao como mais mas está muito ã õ do da dos na no são",
    "it": "il lo la gli le di che e è un una per con non si sono da del della nel anche come più ma questo alla",
    "nl": "de het een en van is dat in niet op te zijn met voor er maar ook aan om bij naar wordt ik ij",
    "pl": "i w nie na się z do że jest to jak ale po co tak za od przez ł ą ę ś ż są dla może",
    "fi": "ja on ei se että hän oli mutta kun niin myös joka ovat ole tai kuin mitä voi sen minä olen",
    "vi": "và của là có không được cho một những các trong với người này đã ơ ư đ ạ ể ộ ế tôi rất",
    "sw": "na ya wa ni kwa katika la za kuwa hii huu yake watu hiyo cha kama lakini pia sana mimi yangu ambayo",
    "tr": "ve bir bu da de için ile çok ne olarak daha gibi ama en o var mi ı ğ ş değil ben",
    "sv": "och att det i en som är på för med av inte den till har de ett om jag var å men",
    "id": "yang dan di untuk dengan ini dari itu tidak dalam adalah pada akan saya ke juga bisa kami mereka ada",
    "ru": "и в не на что с по как это он но они мы я ы э ё его для из так все ли от был",
    "uk": "і в не на що з як це та але вони ми я є ї ґ його для він від також або дуже",
    "bg": "и в не на че с по като това той но те ние аз е се да са от за ще много ъ ят",
    "hi": "है के का की में और से को पर यह हैं नहीं एक था भी कि हो मैं लिए",
    "mr": "आहे आणि या च्या ते मी हे नाही एक ळ आहेत होते आम्ही तो ती साठी करते",
    "ne": "छ र को मा हो यो पनि गर्न छन् एक भएको लागि हुन्छ म छैन गर्दछ तपाईं",
    "ar": "في من على أن إلى هذا التي عن مع كان هو ما لا هذه ة أو ذلك أنا",
    "fa": "و در به از که این است را با برای آن پ چ گ ژ می یک های ها من",
    "ur": "ہے کے کی میں اور سے کو پر یہ ہیں نہیں ایک ٹ ڈ ڑ ں ے تھا بھی",
}
_SETS = {language: frozenset(text.split()) for language, text in _COMMON.items()}
_MIN_SHARE = 0.7
_MAX_CHARS = 20_000


def is_language(text: str, language: str) -> bool:
    """Whether most letters are in the language's script and, of the languages that share it, this one's common words
    are met as often as any's. A text with none of them (a name, one word) counts as any language of its script.

    Raises KeyError for a language that is not known.
    """
    language = language.lower().partition("-")[0]
    if language not in _SCRIPTS:
        raise KeyError(f"language {language!r} is not known; known: {', '.join(sorted(_SCRIPTS))}")
    text = unicodedata.normalize("NFC", text[:_MAX_CHARS]).lower()
    scripts = Counter(_script(char) for char in text if char.isalpha())
    if not scripts:
        return False
    wanted = _SCRIPTS[language]
    inside = scripts[wanted]
    if wanted == "KANA":  # Chinese characters with some kana among them
        inside = inside + scripts["CJK"] if scripts["KANA"] * 20 >= scripts["CJK"] else 0
    elif wanted == "CJK" and scripts["KANA"] * 20 > scripts["CJK"]:
        inside = 0
    if inside < _MIN_SHARE * scripts.total():
        return False
    rivals = [other for other in _SETS if _SCRIPTS[other] == wanted]
    if not rivals:
        return True
    counts = {other: _hits(text, _SETS[other]) for other in rivals}
    return counts[language] == max(counts.values())


def _hits(text: str, common: frozenset[str]) -> int:
    """Common words in the text, and letters of its own, each up to five times."""
    letters = common & _LETTERS
    found = re.findall(r"[\w\u0300-\u036f\u0900-\u097f'’]+", text)
    return sum(word in common for word in found) + sum(min(text.count(letter), 5) for letter in letters)


def _script(char: str) -> str:
    name = unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
    return "KANA" if name in ("HIRAGANA", "KATAKANA") else name
