"""Distograms: crops, the loss, training on generated chains, folding by the command line."""

import pytest
import torch

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.proteins.chain_sets import GeneratedChains
from headwise.proteins.chains import ChainSettings
from headwise.proteins.distograms import DistanceBins, measure_bins
from headwise.proteins.readers.structures import read_chain
from headwise.tasks.distogram_loss import IGNORED, CropData, CropSettings, compute_loss, cut_crop

SETTINGS = CropSettings(16, DistanceBins(), 6, covariance=False)
CHAINS = GeneratedChains(((0, 0), (1, 0)), ChainSettings(min_length=20, max_length=20, rows=8, rounds=2, candidates=4))


def test_a_crop_is_a_part_of_the_chain():
    chain = CHAINS[0]
    crop = cut_crop(chain, SETTINGS, top=2, left=9)
    bins, _ = measure_bins(chain.structure, SETTINGS.bins)
    assert torch.equal(crop.distances[:, :11][crop.distances[:, :11] != IGNORED], bins[2:18, 9:20].flatten())
    assert (crop.distances[:, 11:] == IGNORED).all() and (crop.features[:, :, 11:] == 0).all()
    assert crop.offsets[0, 0] == 7 and crop.offsets[3, 0] == 4
    assert crop.secondary[1, 11:].eq(IGNORED).all() and crop.secondary[0].ne(IGNORED).all()


def test_each_epoch_has_other_crops_and_the_same_again():
    data = CropData(CHAINS, SETTINGS, seed=1, size=2)
    first, again, later = (data.batch(data.plan(epoch)[0]) for epoch in (0, 0, 1))
    assert torch.equal(first.features, again.features)
    assert not torch.equal(first.offsets, later.offsets)


def test_the_loss_is_the_cross_entropy_of_pairs_and_the_mean_of_residues():
    torch.manual_seed(0)
    model = headwise.build("alphafold1-tiny").eval()
    batch = CropData(CHAINS, SETTINGS, seed=1, size=2).batch(torch.tensor([0, 1]).numpy())
    with torch.no_grad():
        prediction = model(batch.features, batch.offsets)
    plain, with_residues = (compute_loss(prediction, batch, weight) for weight in (0.0, 1.0))
    log_p = prediction.distances.log_softmax(-1)
    known = batch.distances != IGNORED
    expected = -sum(log_p[place][batch.distances[place]] for place in map(tuple, known.nonzero().tolist()))
    torch.testing.assert_close(plain.total, expected, rtol=1e-4, atol=0)
    assert int(plain.count) == int(known.sum())
    # at first all logits of the heads are alike: ln 36 + ln 8 + ln 10
    extra = float((with_residues.total - plain.total) / plain.count)
    assert extra == pytest.approx(float(torch.tensor([36.0, 8.0, 10.0]).log().sum()), rel=0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distogram")
    experiment = parse_experiment(
        {
            "name": "toy",
            "task": {"kind": "distogram", "fold": 1, "restarts": 1, "minimise_steps": 20},
            "data": {
                "families": 3, "members": 1, "valid_families": 1, "test_families": 2,
                "min_length": 16, "max_length": 20, "rows": 8,
            },
            "model": {"kind": "alphafold1-tiny"},
            "train": {
                "steps": 40, "validate_every": 20, "batch_size": 3,
                "schedule": {"kind": "cosine", "lr": 0.01, "warmup": 2},
            },
        }
    )  # fmt: skip
    return train_experiment(experiment, folder / "runs")[0]


def test_it_learns_and_is_scored(run):
    scores = {score.name: score.value for score in headwise.load(run.path).evaluate().scores}
    assert scores["nll"] < 0.98 * torch.tensor(64.0).log()
    assert {"contacts L/5", "contacts L/2", "contacts L", "Q3", "lDDT-Cα", "TM-score", "GDT-TS", "RMSD"} <= set(scores)
    assert 0 < scores["lDDT-Cα"] <= 1


def test_fold_writes_a_pdb_file(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "query.a3m").write_text(">q\nMKVLAAGIVLGPTS\n>hit\nMRVLA-GIVaLGPTS\n")
    main(["fold", str(run.path), "query.a3m"])
    assert capsys.readouterr().out.strip() == "query.pdb"
    assert read_chain(tmp_path / "query.pdb").sequence == "MKVLAAGIVLGPTS"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"train": "a.pdb"}}, "chains are generated, not read"),
        ({"data": {"min_length": 99, "max_length": 50}}, "`min_length` is larger than `max_length`"),
        ({"data": {"kind": "texts", "train": "a.tsv"}}, "the task 'distogram' reads chains, not texts"),
        ({"model": {"kind": "alphafold1", "depths": [1]}}, "2 `widths` need as many `depths`, not 1"),
        ({"model": {"kind": "lstm"}}, "the model 'lstm' cannot distogram"),
    ],
)
def test_wrong_settings_are_refused(change, sentence):
    experiment = {"task": "distogram", "data": {}, "model": {"kind": "alphafold1-tiny"}, "train": {"steps": 1}}
    with pytest.raises(UserError, match=sentence.replace("[", "\\[")):
        parse_experiment({**experiment, **change})
