"""Write French sentences with names, dates, times and numbers, and their English, by a small grammar of our own.

    python recipes/grammar.py > runs/grammar.tsv

Everyday corpora have few of each: September stands in 17 of 235,000 sentences of Tatoeba. The grammar is ours, and so
are the pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

COUNT: Final = 26_000
MONTHS: Final = {
    "janvier": "January", "février": "February", "mars": "March", "avril": "April", "mai": "May", "juin": "June",
    "juillet": "July", "août": "August", "septembre": "September", "octobre": "October", "novembre": "November",
    "décembre": "December",
}  # fmt: skip
DAYS: Final = {
    "lundi": "Monday", "mardi": "Tuesday", "mercredi": "Wednesday", "jeudi": "Thursday", "vendredi": "Friday",
    "samedi": "Saturday", "dimanche": "Sunday",
}  # fmt: skip
SEASONS: Final = {
    "en été": "in summer",
    "en hiver": "in winter",
    "en automne": "in autumn",
    "au printemps": "in spring",
}
PLACES: Final = {
    "l'Afrique": "Africa", "l'Asie": "Asia", "l'Europe": "Europe", "l'Espagne": "Spain", "l'Italie": "Italy",
    "l'Allemagne": "Germany", "la France": "France", "la Chine": "China", "la Grèce": "Greece", "le Japon": "Japan",
    "le Canada": "Canada", "le Brésil": "Brazil", "les États-Unis": "the United States", "Londres": "London",
    "Paris": "Paris", "Lyon": "Lyon", "Berlin": "Berlin", "Rome": "Rome", "Moscou": "Moscow", "Genève": "Geneva",
}  # fmt: skip
NAMES: Final = """
Marie Pierre Paul Anne Julie Sophie Claire Alice Louis Hugo Emma Nicolas David Laura Sarah Thomas Lucas Antoine
Jeanne Martin Simon Eva Nina Oscar Victor Elsa Adam Clara Rose Mia Karim Ali Ahmed Hassan Elena Ivan Igor Anna Maria
Pedro Pablo Luca Marco Peter Hans Klaus Greta John Mary Robert Linda Susan Karen Nancy Betty Jack Harry Jill Kate
""".split()  # noqa: SIM905
VERBS: Final = {
    "visite": "visits", "aime": "likes", "quitte": "leaves", "regarde": "looks at", "cherche": "looks for",
    "attend": "waits for", "connaît": "knows", "préfère": "prefers", "découvre": "discovers", "décrit": "describes",
}  # fmt: skip
GREETINGS: Final = {"Bonjour": "Hello", "Salut": "Hi", "Bonsoir": "Good evening"}
THINGS: Final = {
    "pommes": "apples", "livres": "books", "chaises": "chairs", "œufs": "eggs", "billets": "tickets",
    "bouteilles": "bottles", "chemises": "shirts", "timbres": "stamps", "fleurs": "flowers", "stylos": "pens",
}  # fmt: skip
EVENTS: Final = {
    "j'ai acheté une voiture": "I bought a car", "il a plu toute la journée": "it rained all day",
    "elle a quitté la ville": "she left town", "nous nous sommes mariés": "we got married",
    "il est parti": "he left", "la guerre a commencé": "the war began", "mon fils est né": "my son was born",
    "j'ai perdu mon travail": "I lost my job", "ils ont déménagé": "they moved", "tout a changé": "everything changed",
    "le magasin a fermé": "the store closed", "elle m'a téléphoné": "she called me",
}  # fmt: skip
UNITS: Final = """
zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf
""".split()  # noqa: SIM905
TENS: Final = {20: "vingt", 30: "trente", 40: "quarante", 50: "cinquante", 60: "soixante", 80: "quatre-vingt"}
ONES: Final = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
""".split()  # noqa: SIM905
TIES: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905

_draws: Final = random.Random(0)
_pick: Final = _draws.choice


def french(number: int) -> str:
    """Write a number below 1,000 in French."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        ten = number // 10 * 10 if number < 60 else number // 20 * 20
        rest = number - ten
        if not rest:
            return TENS[ten] + ("s" if ten == 80 else "")
        return f"{TENS[ten]} et {UNITS[rest]}" if rest in (1, 11) and ten < 80 else f"{TENS[ten]}-{UNITS[rest]}"
    hundreds, rest = divmod(number, 100)
    start = "cent" if hundreds == 1 else f"{UNITS[hundreds]} cent" + ("" if rest else "s")
    return f"{start} {french(rest)}" if rest else start


def english(number: int) -> str:
    """Write a number below 1,000 in English."""
    if number < 20:
        return ONES[number]
    if number < 100:
        ten, rest = divmod(number, 10)
        return TIES[ten - 2] + (f"-{ONES[rest]}" if rest else "")
    hundreds, rest = divmod(number, 100)
    return f"{ONES[hundreds]} hundred" + (f" and {english(rest)}" if rest else "")


def count(most: int) -> tuple[str, str]:
    """Draw a number from 2 on, in digits or in words."""
    number = _draws.randint(2, most)
    return (str(number), str(number)) if _draws.random() < 0.4 else (french(number), english(number))


def month() -> tuple[str, str]:
    return _pick(list(MONTHS.items()))


def date() -> tuple[str, str]:
    """Draw a day of a month, with or without its year."""
    (fr, en), day = month(), _draws.randint(1, 28)
    first = "1er" if day == 1 else str(day)
    if _draws.random() < 0.5:
        return f"{first} {fr}", f"{en} {day}"
    year = _draws.randint(1700, 2040)
    return f"{first} {fr} {year}", f"{en} {day}, {year}"


def clock() -> tuple[str, str]:
    """Draw a time of day."""
    hour, minute = _draws.randint(1, 23), _draws.choice([0, 5, 10, 15, 20, 30, 40, 45, 50, 55])
    if not minute:
        return (f"{hour} heures" if hour > 1 else "1 heure"), f"{hour} o'clock" if hour < 13 else f"{hour}:00"
    return f"{hour}{_pick(['h', ' h ', ':'])}{minute:02d}", f"{hour}:{minute:02d}"


def who() -> tuple[str, str]:
    name = _pick(NAMES)
    people = [
        ("Il", "He"),
        ("Elle", "She"),
        ("Mon père", "My father"),
        ("Ma sœur", "My sister"),
        ("Mon ami", "My friend"),
    ]
    return (name, name) if _draws.random() < 0.7 else _pick(people)


def when() -> tuple[str, str]:
    """Draw a month, a season or a day of the week."""
    kind = _draws.random()
    if kind < 0.6:
        fr, en = month()
        return f"en {fr}", f"in {en}"
    if kind < 0.75:
        return _pick(list(SEASONS.items()))
    fr, en = _pick(list(DAYS.items()))
    return fr, f"on {en}"


def seeing() -> tuple[str, str]:
    (who_fr, who_en), (verb_fr, verb_en), (place_fr, place_en) = (
        who(),
        _pick(list(VERBS.items())),
        _pick([*PLACES.items()]),
    )
    when_fr, when_en = when() if _draws.random() < 0.7 else ("", "")
    return (
        f"{who_fr} {verb_fr} {place_fr} {when_fr}".rstrip() + ".",
        f"{who_en} {verb_en} {place_en} {when_en}".rstrip() + ".",
    )


def moving() -> tuple[str, str]:
    (who_fr, who_en), (when_fr, when_en) = who(), when()
    fr, en = _pick([("part", "leaves"), ("arrive", "arrives"), ("revient", "comes back"), ("partira", "will leave"),
                    ("se marie", "is getting married"), ("arrivera", "will arrive")])  # fmt: skip
    return f"{who_fr} {fr} {when_fr}.", f"{who_en} {en} {when_en}."


def dated() -> tuple[str, str]:
    fr, en = date()
    (who_fr, who_en) = who()
    return _pick([
        (f"Nous sommes le {fr}.", f"Today is {en}."),
        (f"Aujourd'hui, c'est le {fr}.", f"Today is {en}."),
        (f"Je suis né le {fr}.", f"I was born on {en}."),
        (f"Je suis née le {fr}.", f"I was born on {en}."),
        (f"La réunion aura lieu le {fr}.", f"The meeting will take place on {en}."),
        (f"{who_fr} arrivera le {fr}.", f"{who_en} will arrive on {en}."),
        (f"C'est arrivé le {fr}.", f"It happened on {en}."),
    ])  # fmt: skip


def timed() -> tuple[str, str]:
    fr, en = clock()
    return _pick([
        (f"Il est {fr}.", f"It's {en}."),
        (f"Le train part à {fr}.", f"The train leaves at {en}."),
        (f"Le bus arrive à {fr}.", f"The bus arrives at {en}."),
        (f"Le magasin ouvre à {fr}.", f"The store opens at {en}."),
        (f"Je me lève à {fr}.", f"I get up at {en}."),
        (f"Rendez-vous à {fr}.", f"Let's meet at {en}."),
    ])  # fmt: skip


def aged() -> tuple[str, str]:
    fr, en = count(99)
    who_fr, who_en = who()
    if _draws.random() < 0.4:
        return f"J'ai {fr} ans.", f"I am {en} years old."
    return f"{who_fr} a {fr} ans.", f"{who_en} is {en} years old."


def counted() -> tuple[str, str]:
    fr, en = count(999)
    thing_fr, thing_en = _pick(list(THINGS.items()))
    who_fr, who_en = who()
    return _pick([
        (f"J'ai acheté {fr} {thing_fr}.", f"I bought {en} {thing_en}."),
        (f"{who_fr} a {fr} {thing_fr}.", f"{who_en} has {en} {thing_en}."),
        (f"Il y a {fr} {thing_fr} sur la table.", f"There are {en} {thing_en} on the table."),
        (f"Cela coûte {fr} euros.", f"That costs {en} euros."),
        (f"Ce livre coûte {fr} dollars.", f"This book costs {en} dollars."),
        (f"Il y a {fr} élèves dans cette école.", f"There are {en} students in this school."),
    ])  # fmt: skip


def yearly() -> tuple[str, str]:
    year = _draws.randint(1500, 2040)
    who_fr, who_en = who()
    return _pick([
        (f"C'était en {year}.", f"It was in {year}."),
        (f"{who_fr} mourut en {year}.", f"{who_en} died in {year}."),
        (f"Cette maison a été construite en {year}.", f"This house was built in {year}."),
        (f"Je suis né en {year}.", f"I was born in {year}."),
    ])  # fmt: skip


def opened() -> tuple[str, str]:
    """Put a date, a month or a year in front of what happened."""
    (event_fr, event_en), (date_fr, date_en) = _pick(list(EVENTS.items())), date()
    (month_fr, month_en), year = month(), _draws.randint(1700, 2040)
    fr, en = _pick([
        (f"Le {date_fr}", f"On {date_en}"),
        (f"En {month_fr} {year}", f"In {month_en} {year}"),
        (f"En {year}", f"In {year}"),
        (f"En {month_fr}", f"In {month_en}"),
    ])  # fmt: skip
    return f"{fr}, {event_fr}.", f"{en}, {event_en}."


def measured() -> tuple[str, str]:
    """Draw a number with a decimal comma, or with gaps between its thousands."""
    whole, tenths = _draws.randint(1, 99), _draws.randint(1, 9)
    large = _draws.randint(1, 999) * 1000 + _draws.choice([0, 500, _draws.randint(1, 999)])
    gap = _pick([" ", " ", "\u202f", "."])
    fr, en = _pick([(f"{whole},{tenths}", f"{whole}.{tenths}"), (f"{large:,}".replace(",", gap), f"{large:,}")])
    return _pick([
        (f"Cela coûte {fr} euros.", f"That costs {en} euros."),
        (f"Le prix est de {fr} dollars.", f"The price is {en} dollars."),
        (f"C'est à {fr} kilomètres d'ici.", f"It's {en} kilometers from here."),
        (f"Il pèse {fr} kilos.", f"It weighs {en} kilos."),
        (f"Les prix ont augmenté de {whole} %.", f"Prices have risen by {whole}%."),
        (f"Cette ville a {large:,} habitants.".replace(",", gap), f"This city has {large:,} inhabitants."),
    ])  # fmt: skip


def called() -> tuple[str, str]:
    """Draw a telephone number, which is copied as it stands."""
    number = " ".join(f"{_draws.randint(0, 99):02d}" for _ in range(_draws.choice((3, 4, 5))))
    return _pick([
        (f"Mon numéro est le {number}.", f"My number is {number}."),
        (f"Appelle-moi au {number}.", f"Call me at {number}."),
    ])  # fmt: skip


def greeted() -> tuple[str, str]:
    fr, en = _pick(list(GREETINGS.items()))
    name = _pick(NAMES)
    return _pick([
        (f"{fr}, comment ça va ?", f"{en}, how are you?"),
        (f"{fr}, {name} !", f"{en}, {name}!"),
        (f"{fr} {name}, comment vas-tu ?", f"{en} {name}, how are you?"),
        (f"{fr} tout le monde.", f"{en} everyone."),
        (f"{fr}, je m'appelle {name}.", f"{en}, my name is {name}."),
        (f"{fr} !", f"{en}!"),
    ])  # fmt: skip


def smiled() -> tuple[str, str]:
    """Put one of the usual pictures behind a sentence."""
    fr, en = _pick(RULES)()
    face = chr(_draws.choice([*range(0x1F600, 0x1F644), *range(0x1F440, 0x1F450), 0x2764, 0x2728, 0x1F389, 0x1F680]))
    return f"{fr} {face}", f"{en} {face}"


RULES: Final[list[Callable[[], tuple[str, str]]]] = [
    *[seeing] * 3, moving, *[dated] * 2, timed, *[aged] * 2, *[counted] * 2, yearly, greeted,
    *[opened] * 2, measured, called, smiled,
]  # fmt: skip


def main() -> None:
    """Print pairs, each once."""
    pairs = {_pick(RULES)(): None for _ in range(COUNT)}
    for fr, en in pairs:
        print(f"{fr}\t{en}")


if __name__ == "__main__":
    main()
