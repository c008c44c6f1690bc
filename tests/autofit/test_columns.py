import pytest

from headwise.autofit.columns import Column, find_header
from headwise.autofit.layout import find_layout
from headwise.autofit.roles import read_named, read_roles
from headwise.errors import UserError

TEXTS = [f"a sentence about the number {number} and other things" for number in range(60)]


@pytest.mark.parametrize(
    ("values", "role"),
    [
        (TEXTS, "text"),
        (["good", "bad", "ugly"] * 20, "label"),
        ([str(n % 5 + 1) for n in range(60)], "label"),
        ([f"{n / 7:.2f}" for n in range(60)], "number"),
        ([str(n * n) for n in range(60)], "number"),
        ([str(n) for n in range(60)], "identifier"),
        ([f"img_{n:04}.png" for n in range(60)], "identifier"),
        (["same"] * 60, "constant"),
        ([""] * 60, "empty"),
        ([f"word{'abcdefghij'[n % 10]}{'klmnop'[n // 10]}" for n in range(60)], "text"),
    ],
)
def test_the_type_of_a_column_is_inferred_from_its_values(values, role):
    assert Column(1, values).role == role


@pytest.mark.parametrize(
    ("rows", "present", "sure"),
    [
        ([["text", "label"], *([text, "yes" if n % 2 else "no"] for n, text in enumerate(TEXTS))], True, True),
        ([[text, "yes" if n % 2 else "no"] for n, text in enumerate(TEXTS)], False, True),
        ([["Beschreibung", "Güte"], *([text, f"{n / 7:.1f}"] for n, text in enumerate(TEXTS))], True, True),
        ([["Satz", "Antwort"], *([text, text] for text in TEXTS)], True, False),
        ([["dog", "Hund"], ["cat", "Katze"], ["cow", "Kuh"]], False, True),
        ([["1", "a b c"], ["2", "d e f"]], False, True),
        ([["en", "de"], ["a dog", "ein Hund"], ["a cat", "eine Katze"]], True, True),
    ],
)
def test_a_header_is_told_from_data(rows, present, sure):
    header = find_header(rows)
    assert (header.present, header.sure) == (present, sure), header.reason


def test_texts_with_a_label_are_labelled():
    label = Column("verdict", ["good", "bad"] * 30)
    first, *others = read_roles([Column("id", [str(n) for n in range(60)]), Column("text", TEXTS), label], "f")
    assert (first.shape, first.names) == ("labelled", ("text", "verdict"))
    assert not others


def test_whole_numbers_may_be_a_scale():
    first, second = read_roles([Column("review", TEXTS), Column("stars", [str(n % 5) for n in range(60)])], "f")
    assert (first.shape, second.shape) == ("labelled", "numbers")
    assert second.names == ("review", "stars")


def test_two_texts_and_a_label_are_a_pair_with_a_label():
    columns = [Column("premise", TEXTS), Column("hypothesis", TEXTS[::-1]), Column("label", ["yes", "no"] * 30)]
    assert read_roles(columns, "f")[0].names == ("premise", "hypothesis", "label")


def test_two_texts_alone_are_source_and_target():
    assert read_roles([Column(1, TEXTS), Column(2, TEXTS[::-1])], "f")[0].shape == "pairs"


def test_a_source_and_its_target_are_pairs_although_there_is_a_label():
    columns = [Column("source", TEXTS), Column("target", TEXTS[::-1]), Column("domain", ["news", "law"] * 30)]
    first, second = read_roles(columns, "f")[:2]
    assert (first.shape, first.names) == ("pairs", ("source", "target"))
    assert second.shape == "labelled"


def test_a_score_is_predicted_rather_than_a_genre():
    columns = [
        Column("text", TEXTS),
        Column("genre", ["a", "b"] * 30),
        Column("score", [f"{n / 7}" for n in range(60)]),
    ]
    assert read_roles(columns, "f")[0].names == ("text", "score")


def test_numbers_alone_are_refused_with_the_remedy():
    with pytest.raises(UserError, match=r"no column has texts .*--columns"):
        read_roles([Column(1, [str(n / 3) for n in range(60)])], "numbers.csv")


def test_the_columns_that_the_user_names_decide():
    labels = Column("topic", ["a", "b"] * 30)
    assert read_named([Column("text", TEXTS), labels])[0].shape == "labelled"
    assert read_named([Column("text", TEXTS)])[0].shape == "texts"
    assert read_named([Column("a", TEXTS), Column("b", TEXTS)])[0].shape == "pairs"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The DT\ndog NN\n\nA DT\ncat NN\nsits VBZ\n", "conll"),
        ("-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nHe PRP B-NP O\nleft VBD B-VP O\n", "conll"),
        ("1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n", "conllu"),
        ("a dog\tein Hund\na cat\teine Katze\n", "tsv"),
        ('text,label\n"Good, really.",pos\n"Bad, really.",neg\n', "csv"),
        ('"Good; really.";pos\n"Bad; really.";neg\n', "csv"),
        ("A man walks.\nA dog barks.\n" * 10, "lines"),
        ("It was, in truth, a long day\nand nobody, not even she,\nknew why; he did, of course.\n" * 5, "text"),
        ("First came the sea, wide and grey\n\nThen the hills\n\nThen nothing at all\n", "text"),
    ],
)
def test_the_layout_of_a_text_file(text, kind):
    assert find_layout(text.splitlines()).kind == kind
