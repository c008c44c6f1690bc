"""Every number of the lectures' worked example, of the sinusoid and of the masks, written out."""

import numpy as np
import pytest

from headwise.explain.attention import AttentionExample, attend, to_json
from headwise.explain.mask import MaskExample, apply_mask
from headwise.explain.positions import ENCODINGS, MAX_POSITION, measure_requirements, rotation_matrix, sinusoid
from headwise.explain.source import load_shipped

EXAMPLE = load_shipped(AttentionExample, "attention.toml")

INPUTS = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
QUERIES = [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
KEYS = [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
VALUES = [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
SCORES = [[2, 4, 4], [4, 16, 12], [4, 12, 10]]

EXACT = {
    "weights": [[0.063379, 0.468311, 0.468311], [0.000006, 0.982008, 0.017986], [0.000295, 0.880537, 0.119168]],
    "outputs": [[1.936621, 6.683105, 1.595068], [1.999994, 7.963992, 0.053976], [1.999705, 7.759892, 0.358389]],
}
SCALED = {
    "weights": [[0.136126, 0.431937, 0.431937], [0.000890, 0.908843, 0.090267], [0.007445, 0.754708, 0.237848]],
    "outputs": [[1.863874, 6.319371, 1.704189], [1.999110, 7.814124, 0.273472], [1.992555, 7.479636, 0.735877]],
}
SLIDES = {
    "weights": [[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]],
    "outputs": [[2.0, 7.0, 1.5], [2.0, 8.0, 0.0], [2.0, 7.8, 0.3]],
}


def close(actual: object, expected: object) -> bool:
    return bool(np.allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=5.1e-7))


def test_the_example_is_the_lectures() -> None:
    assert close(EXAMPLE.inputs, INPUTS)
    assert close(EXAMPLE.key, [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    assert close(EXAMPLE.value, [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    assert close(EXAMPLE.query, [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])


def test_projections_and_scores_are_whole_numbers() -> None:
    head = attend(EXAMPLE, scaled=False)
    assert head.queries.tolist() == QUERIES
    assert head.keys.tolist() == KEYS
    assert head.values.tolist() == VALUES
    assert head.scores.tolist() == SCORES


@pytest.mark.parametrize(("scaled", "expected"), [(False, EXACT), (True, SCALED)])
def test_weights_and_outputs_to_six_places(scaled: bool, expected: dict[str, list[list[float]]]) -> None:
    head = attend(EXAMPLE, scaled=scaled)
    assert close(head.weights, expected["weights"])
    assert close(head.outputs, expected["outputs"])


def test_the_slides_round_and_get_their_own_outputs() -> None:
    rounded = to_json(EXAMPLE)["rounded"]
    assert close(rounded["weights"], SLIDES["weights"])
    assert close(rounded["outputs"], SLIDES["outputs"])


@pytest.mark.parametrize("scaled", [False, True])
def test_outputs_lie_in_the_hull_of_the_values(scaled: bool) -> None:
    head = attend(EXAMPLE, scaled=scaled)
    assert np.allclose(head.weights.sum(axis=1), 1)
    assert (head.outputs >= head.values.min(axis=0)).all()
    assert (head.outputs <= head.values.max(axis=0)).all()


def test_sinusoid_values() -> None:
    assert close(sinusoid([0, 1], 4), [[0, 1, 0, 1], [0.841471, 0.540302, 0.010000, 0.999950]])
    # ω_1 = 10000^(-2/6) = 0.0464159, ω_2 = 0.00215443
    assert close(sinusoid([2], 6), [[0.909297, -0.416147, 0.092699, 0.995694, 0.004309, 0.999991]])


@pytest.mark.parametrize("shift", [1, 3, 17])
def test_a_shift_is_one_rotation_for_all_positions(shift: int) -> None:
    turn = rotation_matrix(shift, 16)
    positions = np.arange(500)
    assert np.allclose(sinusoid(positions + shift, 16), sinusoid(positions, 16) @ turn.T, atol=1e-12)
    assert np.allclose(turn @ turn.T, np.eye(16))


def test_sinusoids_are_the_same_in_every_text_bounded_and_distinct() -> None:
    table = sinusoid(np.arange(MAX_POSITION + 1), 64)
    assert (sinusoid([7], 64) == table[7]).all()
    largest, closest = measure_requirements(table)
    assert largest <= 1
    assert closest > 0.5
    assert np.allclose(np.linalg.norm(table, axis=1), np.sqrt(32))


def test_the_simpler_encodings_fail_as_they_should() -> None:
    far = np.arange(MAX_POSITION + 1.0)
    assert measure_requirements(ENCODINGS["integer"](far))[0] == MAX_POSITION
    assert measure_requirements(ENCODINGS["sigmoid"](far))[1] == 0
    assert measure_requirements(ENCODINGS["slow sine"](far))[1] < 1e-5


def test_causal_mask_of_the_worked_example() -> None:
    # row 2: 1 / (1 + e^12), row 3 is unmasked
    result = apply_mask(np.array(SCORES, dtype=float), np.tri(3, dtype=bool))
    assert result.scores.tolist() == [[2, -np.inf, -np.inf], [4, 16, -np.inf], [4, 12, 10]]
    assert close(result.weights, [[1, 0, 0], [0.000006, 0.999994, 0], EXACT["weights"][2]])
    assert result.weights[0].tolist() == [1, 0, 0]


def test_masks_of_the_shipped_example() -> None:
    example = load_shipped(MaskExample, "mask.toml")
    weights = {
        name: apply_mask(np.array(example.scores), seen).weights.round(4).tolist()
        for name, seen in example.masks.items()
    }
    assert weights["causal"] == [
        [1, 0, 0, 0],
        [0.2689, 0.7311, 0, 0],
        [0.0900, 0.6652, 0.2447, 0],
        [0.0321, 0.0871, 0.6439, 0.2369],
    ]
    assert weights["padding"] == [
        [0, 0.6652, 0.0900, 0.2447],
        [0, 0.6652, 0.0900, 0.2447],
        [0, 0.7054, 0.2595, 0.0351],
        [0, 0.0900, 0.6652, 0.2447],
    ]
    assert weights["both"] == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0.7311, 0.2689, 0], [0, 0.0900, 0.6652, 0.2447]]


def test_a_fully_masked_row_is_zero_and_never_nan() -> None:
    result = apply_mask(np.array([[1e30, -1e30], [0.0, 1.0]]), np.array([[False, False], [True, False]]))
    assert result.weights.tolist() == [[0, 0], [1, 0]]
