"""The small words of some languages: a few of them give a sentence's language away.

They find a third language in a corpus, which the look of the two sides cannot: where one sentence in twenty is German,
German is part of that look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

_WORDS: Final = {
    "Czech": (
        "je se na že do ne si ale jak by pro jsem jsou jako není když byl bylo která také jen už co tak po za "
        "od mi to ve ze mu ho"
    ),
    "Danish": (
        "og at det er en et som på for ikke af med til den jeg du har om så var vi kan fra hvad de han hun "
        "men eller sig der min"
    ),
    "Dutch": (
        "de het een en van is dat op te niet met voor zijn er maar om aan ook als bij naar hij zij ik wordt "
        "deze die wat we je in of dan was heeft mijn"
    ),
    "English": (
        "the and of to is in that it for you with on are this was have be not he she they his her from or an "
        "at by as do no we can will if all has but my so me am what there when which"
    ),
    "Esperanto": "la kaj de estas ne en mi ke al por li ŝi tio sed ĝi vi kun pri estis da do ni kiel tiu sur",
    "Finnish": (
        "ja on ei se että hän oli olen mutta kun niin minä sinä mitä tämä joka kuin ole ovat myös en sen hänen voi jos"
    ),
    "French": (
        "le la les de des du et est un une que qui dans pour pas sur avec ce cette il elle nous vous je ne au "
        "aux par se si on son sa ses en te tu es non ou où plus mais me mon ma mes ils elles leur à ai as "
        "sont tout fait"
    ),
    "German": (
        "der die das und ist nicht ein eine ich du er sie es wir zu den dem mit von für auf im auch wie dass "
        "hat sind war in an so man aus bei nach oder aber mich mir sich noch nur als wenn kann einen einem "
        "was"
    ),
    "Greek": "και το να του της με που την από για είναι στο δεν τα θα τον τους στην αυτό μου σου τι αν οι ένα μια",
    "Hungarian": (
        "az és hogy nem is egy ez van volt csak meg mint vagy azt ki el kell de nincs lesz már ha én te le be sem"
    ),
    "Indonesian": (
        "yang dan di itu dengan untuk tidak ini dari dalam akan pada saya adalah ke karena bisa ada dia kami anda atau"
    ),
    "Italian": (
        "il la lo gli le di del della un una che in per con non si mi ti sono come più alla nel questo ma se "
        "ho ha da al è ci anche io suo sua dei"
    ),
    "Norwegian": (
        "og det er en et som på for ikke av med til den jeg du har om så var vi kan fra hva de han hun men "
        "eller seg at min"
    ),
    "Polish": "nie się na do to jest że jak co ale po tak za od czy ma być przez dla są był już mi go tym jego tylko",
    "Portuguese": (
        "os as de do da dos das um uma que em por para com não se no na ao mais como está são mas você eu ele "
        "ela me te seu sua foi isso"
    ),
    "Romanian": "și de la în nu un cu pe este să că din pentru care mai sunt ce dar fost sau am se te mă lui ei",
    "Russian": "не на что он как это но по из за то так же все для был она они его мы вы или мне бы от ты",
    "Spanish": (
        "el la los las de del es un una que en por para con no se su lo al como más está son pero muy me te "
        "mi si yo ha le sus este esta"
    ),
    "Swedish": (
        "och att det är en ett som på för inte av med till den jag du har om så var vi kan från vad de han "
        "hon men eller sig min"
    ),
    "Turkish": "ve bir bu da de için ne ile mi çok var ama gibi daha ben sen olarak değil kadar sonra her ya en",
    "Ukrainian": "не на що як це але до та за то він від для вона вони або був його ми ви мені би ти",
    "Vietnamese": "và là của có không được trong cho một những này với các người đã khi tôi anh bạn đó",
}

_LANGUAGES: Final = {
    word: [language for language in _WORDS if f" {word} " in f" {_WORDS[language]} "]
    for word in " ".join(_WORDS.values()).split()
}  # of each word, the languages that have it

_LEAD: Final = 2  # different words that a language must have beyond twice as many as the usual one


def usual_language(forms: Sequence[str]) -> str | None:
    """Name the language whose small words most of some texts, in their normal forms, have most of.

    None means that no language of the list is that of half the texts, so that its words prove nothing here.
    """
    votes = Counter(_most(hits)[0] for hits in map(_hits, forms) if hits)
    if not votes:
        return None
    language, n_votes = _most(votes)
    return language if 2 * n_votes > len(forms) else None


def other_language(form: str, usual: str) -> str | None:
    """Name the language of a text if its small words speak clearly for another than the usual one."""
    hits = _hits(form)
    if not hits:
        return None
    language, n_hits = _most(hits)
    return language if language != usual and n_hits >= 2 * hits[usual] + _LEAD else None


def _hits(form: str) -> Counter[str]:
    """Count the different small words that a text has of each language."""
    hits: Counter[str] = Counter()
    for word in set(form.split()) & _LANGUAGES.keys():
        hits.update(_LANGUAGES[word])
    return hits


def _most(counts: Counter[str]) -> tuple[str, int]:
    """Give the commonest, and of equals the last by name: a set of words has no order of its own."""
    language = max(counts, key=lambda name: (counts[name], name))
    return language, counts[language]
