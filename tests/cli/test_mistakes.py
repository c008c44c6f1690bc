"""A user's mistake: one clear sentence, exit status 2, no traceback, nothing half-written."""

import re

import pytest

CHANGES = [
    ("model.widht=64", "reverse.toml: model.widht: unknown key; did you mean width?"),
    ("learning_rate=1", "reverse.toml: learning_rate: unknown key; Headwise calls it train.schedule.lr; it belongs in"),
    ("model.d_model=64", "reverse.toml: model.d_model: unknown key; Headwise calls it model.width\n"),
    ("train.n_heads=4", "train.n_heads: unknown key; Headwise calls it model.heads; it belongs in [model]"),
    ("decode.num_beams=4", "decode.num_beams: unknown key; Headwise calls it decode.beams\n"),
    ("train.schedule.warmup_steps=4", "Headwise calls it train.schedule.warmup\n"),
    ("model.encoder.layers=4", "model.encoder.layers: is a pattern of parts, not a number of layers"),
    ("model.depth=0", "reverse.toml: model.depth: "),
    ("model.encoder.layers=[[{kind='atention'}]]", "no part is called 'atention'; did you mean attention"),
    ("model.kind=transformr", "did you mean transformer"),
    ("model.heads=5", "a width of 32 cannot be divided among 5 heads"),
    ("model.output_layer={kind='adaptive', cutoffs=[9, 4]}", "model.output_layer.cutoffs: [9, 4] do not increase"),
    ("model.output_layer={kind='adaptive', cutoffs=[9999]}", "output_layer.cutoffs: 9999 is beyond the vocabulary of"),
    ("model.output_layer=adaptiv", "model.output_layer.kind: no output layer is called 'adaptiv'; did you mean adap"),
    ("train.steps=0", "training needs an end; set steps, epochs, minutes, tokens or flops"),
    ("train.schedule=nome", "no schedule is called 'nome'; did you mean noam?"),
    ("data.train=missing.tsv", "missing.tsv: there is no such file"),
    ("data.name=wmt", "give either the `name` of a corpus or files, not both"),
    ("tokeniser.kind=wordz", "did you mean words?"),
    ("train.device=cuda:99", "cuda"),
    ("train.steps", "write it as key=value"),
]


@pytest.mark.parametrize(("change", "sentence"), CHANGES)
def test_a_wrong_setting(headwise, experiment_file, tmp_path, change, sentence):
    outcome = headwise("train", experiment_file(), "--set", change)
    assert outcome.status == 2 and sentence in outcome.err
    assert "Traceback" not in outcome.err and outcome.out == ""
    assert not list(tmp_path.glob("runs/*/checkpoints/*"))


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        (
            "",
            ["own.toml: data: there is nothing to learn from", "own.toml: train: training needs an end; write [train]"],
        ),
        ('[data]\ntrain = "pairs.tsv"\n', ["own.toml: train: training needs an end; write [train] with minutes = 10"]),
        ("[train]\nsteps = 1\n", ["own.toml: data: there is nothing to learn from; write [data] with train = "]),
        ("[train]\nsteps = 1\n[data]\n", ["[data] names nothing to train on; set data.name or data.train"]),
    ],
)
def test_a_file_that_lacks_a_table(headwise, tmp_path, content, sentences):
    (tmp_path / "own.toml").write_text(content)
    outcome = headwise("train", "own.toml")
    assert outcome.status == 2 and all(sentence in outcome.err for sentence in sentences)
    assert "Traceback" not in outcome.err and "field required" not in outcome.err.lower()
    assert not (tmp_path / "runs").exists()


FILES = [
    (b"", "pairs.tsv"),
    (b"abc\tC B A\nabc\n", "pairs.tsv, line 2"),
    (b"abc\tC B A\nxyz\t\n", "pairs.tsv, line 2"),
    (b"abc\tC B A\n\xff\xfe\tX\n", "pairs.tsv, line 2"),
]


@pytest.mark.parametrize(("content", "place"), FILES)
def test_a_bad_corpus(headwise, experiment_file, tmp_path, content, place):
    experiment = experiment_file()
    (tmp_path / "pairs.tsv").write_bytes(content)
    outcome = headwise("train", experiment)
    assert outcome.status == 2 and place in outcome.err
    assert not (tmp_path / "runs").exists()


def test_mismatched_line_counts(headwise, tmp_path):
    (tmp_path / "a").write_text("x\ny\n")
    (tmp_path / "b").write_text("x\n")
    outcome = headwise("fit", "a", "b")
    assert outcome.status == 2 and re.search(r"\b(a|b)\b.*line", outcome.err)


def test_a_word_of_ten_thousand_characters(headwise, trained):
    outcome = headwise("translate", trained, "a" * 10_000, "--engine", "native", "--threads", 1)
    assert outcome.status == 0 and outcome.out.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["translate", "nowhere", "a"], "nowhere: there is no such folder"),
        (["train", "nowhere.toml"], "nowhere.toml: there is no such file; check the path, or copy one of experiments/"),
        (["embed", "nowhere", "nearest", "cat"], "nowhere: there is no such run or file; name a run"),
        (["train"], "name an experiment file, or a run with --resume"),
        (["show", "transformer-bse"], "did you mean transformer-base"),
        (["show", "gpt2", "--set", "n_embd=64"], "gpt2-small: n_embd: unknown key; Headwise calls it model.width"),
        (["show", "gpt2", "--set", "model.n_head=4"], "gpt2-small: n_head: unknown key; Headwise calls it model.heads"),
        (["show", "gpt2", "--set", "model=4"], "gpt2-small: model: unknown key"),
        (["fit"], "name a file or folder to learn from"),
        (["runs"], "there is no such folder"),
        (["evaluate", "nowhere"], "there is no such folder"),
        (["frobnicate"], 'headwise: unknown command "frobnicate"; see `headwise --help`\n'),
        (["evaluat"], 'headwise: unknown command "evaluat"; did you mean "evaluate"?; see `headwise --help`\n'),
        (["export", "run", "folder"], "headwise: export: --to needs a value; see `headwise export --help`\n"),
        (["show"], "headwise: show: NAME needs a value; see `headwise show --help`\n"),
        (["show", "gpt2", "llama"], "headwise: show: does not take llama; see `headwise show --help`\n"),
        (["train", "--stepz", "3"], "train: unknown option: --stepz; did you mean --steps?; see `headwise train"),
        (["export", "a", "b", "--to", "pdf"], 'export: invalid value "pdf" for --to; choose from: "hf", "timm"'),
        (["import", "nowhere", "runs/x"], "nowhere"),
    ],
)
def test_a_wrong_command(headwise, command, sentence):
    outcome = headwise(*command)
    assert outcome.status == 2 and sentence in outcome.err and "Traceback" not in outcome.err


def test_a_run_folder_that_cannot_be_written(headwise, experiment_file, tmp_path):
    experiment = experiment_file(steps=2)
    (tmp_path / "runs").write_text("a file stands where the folder should be")
    outcome = headwise("train", experiment)
    assert outcome.status == 2 and "runs" in outcome.err and "Traceback" not in outcome.err


def test_a_checkpoint_of_another_architecture(headwise, trained, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "other")
    config = tmp_path / "other/config.toml"
    config.write_text(config.read_text().replace("width = 32", "width = 64", 1))
    (tmp_path / "other/manifest.json").unlink()  # as its error says of files that were changed on purpose
    outcome = headwise("translate", "other", "abc")
    assert outcome.status == 2 and "belongs to another architecture" in outcome.err


def test_a_key_of_the_model_is_shown_as_an_experiment_has_it(headwise):
    plain, dotted = (headwise("show", "gpt2-tiny", "--json", "--set", each) for each in ("width=64", "model.width=64"))
    assert plain.status == dotted.status == 0 and plain.out == dotted.out
    assert plain.out != headwise("show", "gpt2-tiny", "--json").out


@pytest.mark.parametrize("name", ["stdin", "--file words.txt"])
def test_text_that_is_not_utf8(headwise, trained, tmp_path, monkeypatch, name):
    (tmp_path / "words.txt").write_bytes("abc\nd\u00e4\n".encode("latin-1"))
    with open(tmp_path / "words.txt", encoding="latin-1") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = headwise("translate", trained, *(name.split() if name != "stdin" else ()))
    assert outcome.status == 2
    sentence = "line 2: byte 0xe4 is not UTF-8; convert the text to UTF-8, as with iconv"
    assert outcome.err.endswith(f"headwise: {name}, {sentence}\n")


def test_two_aligned_files_after_one_option(headwise, trained, tmp_path):
    (tmp_path / "a.en").write_text("abc\nde\n")
    (tmp_path / "a.de").write_text("C B A\nE D\n")
    for words in (("--data", "a.en", "a.de"), ("--data", "a.en", "--data", "a.de")):
        outcome = headwise("evaluate", trained, *words, "--threads", 1)
        assert outcome.status == 0 and "(2 items)" in outcome.out, outcome.err


@pytest.mark.parametrize("words", [("runs", "{}", "--plot", "x.bmp"), ("evaluate", "{}", "--by-length", "x.bmp")])
def test_a_picture_of_another_format_is_refused_before_the_work(headwise, trained, words):
    outcome = headwise(*(word.format(trained) for word in words))
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == "headwise: x.bmp: the file ends in '.bmp'; known: .png, .svg\n"


def test_no_color_prints_no_escape_codes(headwise, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in headwise("show", "gpt2-tiny").out
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (("show", "gpt2-tiny"), ("show", "--help")):
        assert "\x1b[" not in headwise(*words).out


def test_show_says_what_tied_weights_count(headwise):
    shown = headwise("show", "transformer-base").out  # one table of 37,000 x 512 in encoder, decoder and head
    assert "tied weights, 37,888,000 more in the tree, are counted once" in shown
    assert "tied" not in headwise("show", "llama-tiny").out
