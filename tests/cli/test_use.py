"""Using a trained run from the command line, as a newcomer would."""

import json
from io import BytesIO, TextIOWrapper
from xml.etree import ElementTree

import pytest

import headwise as hw
from headwise.inference import backends
from headwise.interop.ctranslate2 import CTranslate2Engine


def test_translate_arguments(headwise, trained):
    assert headwise("translate", trained, "abc", "hag").out == "C B A\nG A H\n"


def test_translate_standard_input_keeps_the_order_of_lines(headwise, trained, monkeypatch):
    stdin = TextIOWrapper(BytesIO(b"abcd\nab\nfed\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert headwise("translate", trained).out == "D C B A\nB A\nD E F\n"


def test_translate_a_file_with_another_engine(headwise, trained, tmp_path):
    (tmp_path / "words").write_text("abc\nfed\n")
    native = headwise("translate", trained, "--file", "words", "--engine", "native").out
    assert (
        headwise("translate", trained, "--file", "words", "--engine", "ctranslate2").out == native == "C B A\nD E F\n"
    )


@pytest.mark.parametrize("wrong", [False, True])
def test_eight_bits_are_left_to_ctranslate2_only_where_its_sums_are_right(trained, monkeypatch, caplog, wrong):
    monkeypatch.setattr(backends, "overflows", lambda: wrong)  # as the CPU has it
    loaded = hw.load(trained)
    taken = [backends.choose_backend(loaded, "auto", int8).model for int8 in (False, True)]
    assert [isinstance(model, CTranslate2Engine) for model in taken] == [True, not wrong]
    assert not caplog.text
    assert isinstance(backends.choose_backend(loaded, "ctranslate2", int8=True).model, CTranslate2Engine)
    assert ("use --engine native" in caplog.text) is wrong


def test_nbest_is_sorted_and_json_holds_scores(headwise, trained):
    found = json.loads(headwise("translate", trained, "abc", "--beams", 4, "--nbest", 3, "--json").out)
    scores = [each["score"] for each in found["outputs"]]
    assert found["source"] == "abc" and len(scores) == 3 and scores == sorted(scores, reverse=True)


def test_an_ensemble_of_a_run_with_itself_is_the_run(headwise, trained):
    assert headwise("translate", trained, "abc", "--and", trained, "--engine", "native").out == "C B A\n"


def test_evaluate_reports_intervals_and_writes_outputs(headwise, trained, tmp_path):
    found = headwise("evaluate", trained, "--json", "--outputs", "out.tsv")
    scores = {each["name"]: each for each in json.loads(found.out)["scores"]}
    assert set(scores) == {"SER", "PER", "perplexity"}
    assert scores["SER"]["low"] <= scores["SER"]["value"] <= scores["SER"]["high"]
    assert scores["SER"]["value"] < 20
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert all(len(row) == 3 for row in rows)


def test_evaluate_takes_pairs_of_ones_own(headwise, trained, tmp_path):
    (tmp_path / "mine.tsv").write_text("abc\tC B A\nabc\tX\nfed\tWRONG\n")
    found = json.loads(headwise("evaluate", trained, "--data", "mine.tsv", "--json").out)
    assert found["items"] == 2  # abc has two references, of which one is right
    assert found["scores"][0]["value"] == pytest.approx(50)


def test_inspect_draws_what_the_recorder_saw(headwise, trained, tmp_path):
    assert headwise("inspect", trained, "abc", "--out", "a.svg").out == "a.svg\n"
    drawn = "".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    assert all(token in drawn for token in ("a", "b", "c", "A", "B", "C"))
    assert headwise("inspect", trained, "abc", "--out", "heads.png", "--view", "heads", "--kind", "encoder").status == 0
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert headwise("inspect", trained, "abc", "--out", "page.html").status == 0


def test_alignment_follows_the_reversal(trained):
    maps = hw.load(trained).inspect("abcd")
    assert maps.source_tokens[:4] == ("a", "b", "c", "d")
    assert maps.target_tokens[:4] == ("D", "C", "B", "A")
    for kind, weights in maps.weights.items():
        assert weights.sum(-1) == pytest.approx(1.0, abs=1e-5), kind
    first, last = maps.weights["cross"][..., 0, :4].max(), maps.weights["cross"][..., 3, :4].max()
    assert first > 0.25 and last > 0.25


def test_runs_lists_compares_and_plots(headwise, trained, tmp_path):
    (row,) = json.loads(headwise("runs", trained.parent, "--json").out)
    assert (row["name"], row["steps"], row["score"]) == ("reverse", 250, "ser")
    assert "reverse" in headwise("runs", trained, trained, "--compare", "--plot", "c.png").out
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_a_run_that_hugging_face_cannot_express_is_exported_with_our_config(headwise, trained):
    exported = headwise("export", trained, "hf", "--to", "hf")
    assert exported.status == 0 and "wiring: config.json of marian cannot express this" in exported.err
    assert headwise("translate", "hf", "abc").out == headwise("translate", trained, "abc").out
    refused = headwise("export", trained, "hf2", "--to", "hf", "--check")
    assert refused.status == 2 and "transformers cannot load it" in refused.err


def test_export_to_hugging_face_and_back(headwise, experiment_file):
    run = headwise("train", experiment_file(steps=30), "--set", "model.wiring=post").out.strip()
    assert headwise("export", run, "hf", "--to", "hf").out == "hf\n"
    assert headwise("import", "hf", "runs/back").status == 0
    outputs = [headwise("translate", each, "abc", "hag", "--engine", "native").out for each in (run, "hf", "runs/back")]
    assert outputs[0] == outputs[1] == outputs[2] != ""


def test_export_to_ctranslate2(headwise, trained, tmp_path):
    assert headwise("export", trained, "ct2", "--to", "ctranslate2", "--int8").out == "ct2\n"
    assert (tmp_path / "ct2" / "model.bin").stat().st_size > 1000
