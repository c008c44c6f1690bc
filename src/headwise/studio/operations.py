"""What the workers of the studio compute, by name. Importing this table imports no torch: the front reads it too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.studio.ablation import AblationCase
    from headwise.studio.workspace import Workspace

Body = dict[str, Any]
Answer = bytes | str | dict[str, Any] | list[Any]
Lane = Literal["short", "lists", "heavy", "maps"]

# A lane computes one operation at a time, in a thread of its own. Models are run in `short` and `heavy`, of which no
# operation waits for the other; `lists` and `maps` read files and cached maps beside them.
WORKER_OF_LANE: Mapping[Lane, str] = {"short": "short", "lists": "short", "heavy": "heavy", "maps": "heavy"}


@dataclass(frozen=True)
class Operation:
    """A function, and the lane in which it runs."""

    run: Callable[[Workspace, Body], Answer]
    lane: Lane


# Runs


def list_runs(workspace: Workspace, body: Body) -> Answer:
    return [folder.to_dict() for folder in workspace.registry.items().values()]


def list_histories(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.run_history import summarize

    return [summarize(folder) for folder in workspace.registry.items().values()]


def get_rows(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.run_history import get_rows

    return [get_rows(workspace.registry[each["run"]], each["since"], each["step"]) for each in body["runs"]]


def get_samples(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.run_history import get_samples

    return get_samples(workspace.registry[body["run"]])


def compare_settings(workspace: Workspace, body: Body) -> Answer:
    from headwise.runs.differences import find_differences

    runs = [workspace.registry[name].run for name in body["runs"]]
    if None in runs:
        raise UserError("a folder of another library has no settings to compare; choose runs")
    settings = find_differences([run.config for run in runs if run is not None])
    texts = {key: [None if value is None else str(value) for value in values] for key, values in settings.items()}
    return {"runs": body["runs"], "settings": texts}


def list_tables(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.comparing import find_tables

    return sorted(find_tables(workspace.registry.paths))


def describe_table(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.comparing import describe_table

    return describe_table(workspace.registry.paths, body["name"], body["score"])


# Look and neuron


def look(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.map_cache import collect_maps, count_bytes, pack_overview
    from headwise.studio.texts import get_input_tokeniser, report_unknown

    trained = workspace.get_model(body["run"])
    maps = collect_maps(trained, body["text"], body["target"])
    note = report_unknown(get_input_tokeniser(trained), body["text"])
    details = {"run": body["run"], **workspace.measure(), "note": note}
    return pack_overview(workspace.maps.add(maps, count_bytes(maps)), maps, details, body["kind"], body["layer"])


def get_layer(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.map_cache import pack_layer

    return pack_layer(workspace.maps[body["name"]], body["kind"], body["layer"], body["exact"])


def render_maps(workspace: Workspace, body: Body) -> Answer:
    from headwise.inspect.page import render_page

    return render_page(workspace.maps[body["name"]], body["title"])


def record_neurons(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.map_cache import count_bytes
    from headwise.studio.neurons import record_inputs

    view = record_inputs(workspace.get_model(body["run"]), body["text"], body["target"])
    timed = workspace.measure()
    return {
        "name": workspace.neurons.add(view, count_bytes(view.maps)), "run": body["run"], **timed, **view.to_dict()
    }  # fmt: skip


def get_neuron_row(workspace: Workspace, body: Body) -> Answer:
    view = workspace.neurons[body["name"]]
    return view.pack_row(body["kind"], body["layer"], body["head"], body["query"], body["key"])


# Step and intervene


def step(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.decoding import decode_step

    response, details = decode_step(workspace.get_model(body["run"]), body["text"], body["tokens"])
    return response.to_bytes({**workspace.measure(), **details})


def search_beams(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.decoding import search_beams

    found = search_beams(workspace.get_model(body["run"]), body["text"], body["beams"], body["longest"])
    return {**workspace.measure(), **found}


def make_case(workspace: Workspace, body: Body) -> AblationCase:
    from headwise.studio.ablation import AblationCase

    return AblationCase(workspace.get_model(body["run"]), body["text"], body["target"], body["ids"])


def ablate(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.ablation import Ablations, ablate

    found = ablate(make_case(workspace, body), Ablations(body["hidden"], body["heads"], body["layers"]))
    return {**workspace.measure(), **found}


def measure_heads(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.ablation import measure_heads

    found = measure_heads(make_case(workspace, body), body["kind"], body["layer"])
    return {**workspace.measure(), **found}


def measure_tokens(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.ablation import measure_tokens

    found = measure_tokens(make_case(workspace, body))
    return {**workspace.measure(), **found}


def logit_lens(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.ablation import logit_lens

    found = logit_lens(make_case(workspace, body))
    return {**workspace.measure(), **found}


# Images, chains and episodes


def inspect_image(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.pictures import inspect_image

    maps, details, response = inspect_image(workspace.get_model(body["run"]), body["content"])
    return response.to_bytes({"name": workspace.images.add(maps), "run": body["run"], **details})


def render_image(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.pictures import render_page

    return render_page(workspace.get_model(body["run"]), body["content"], body["run"])


def get_image_map(workspace: Workspace, body: Body) -> Answer:
    return workspace.images[body["name"]].pack_map(body["layer"], body["row"], body["column"], body["query"])


def fold(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.folding import count_bytes, fold_chain, pack_chain

    inspection = fold_chain(workspace.get_model(body["run"]), body["alignment"], body["chain"])
    name = workspace.chains.add(inspection, count_bytes(inspection))
    return pack_chain(inspection, {"name": name, "run": body["run"]})


def get_fold_attention(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.folding import pack_attention

    return pack_attention(workspace.chains[body["name"]], body["kind"], body["layer"], body["line"])


def render_fold(workspace: Workspace, body: Body) -> Answer:
    from headwise.inspect.fold_page import render_page

    return render_page(workspace.chains[body["name"]], body["title"])


def format_fold(workspace: Workspace, body: Body) -> Answer:
    from headwise.proteins.readers.pdb_writer import format_pdb

    return format_pdb(*workspace.chains[body["name"]].folded)


def play(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.playing import pack_episode, play_episode

    played = play_episode(workspace.get_model(body["run"]), body["seed"], body["target"], body["changes"])
    return pack_episode(played, {"name": workspace.episodes.add(played, played.size), "run": body["run"]})


def get_frame(workspace: Workspace, body: Body) -> Answer:
    frames, step = workspace.episodes[body["name"]].frames, body["step"]
    if not 0 <= step < len(frames):
        raise UserError(f"there is no step {step + 1} here; this episode has {len(frames)}")
    return frames[step]


# Explain and catalogue


def build_masks(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.position_views import build_masks

    return build_masks(**body)


def view_positions(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.position_views import pack_view, view_kind

    return pack_view(view_kind(**body))


def view_run_positions(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.position_views import pack_view, view_model

    model = workspace.get_model(body["run"]).model
    choices, view = view_model(model, body["which"], body["length"], body["head"])
    return pack_view(view, choices=choices, which=body["which"])


def list_sentences(workspace: Workspace, body: Body) -> Answer:
    from headwise.studio.texts import keep_known_sentences

    return keep_known_sentences(workspace.get_model(body["run"]), body["sentences"])


def get_tree(workspace: Workspace, body: Body) -> Answer:
    return workspace.trees.get_tree(body["name"])


def get_cost(workspace: Workspace, body: Body) -> Answer:
    return workspace.trees.get_cost(body["name"], body["at"])


OPERATIONS: Mapping[str, Operation] = {
    "runs": Operation(list_runs, "lists"),
    "histories": Operation(list_histories, "lists"),
    "rows": Operation(get_rows, "lists"),
    "samples": Operation(get_samples, "lists"),
    "differences": Operation(compare_settings, "lists"),
    "tables": Operation(list_tables, "lists"),
    "table": Operation(describe_table, "lists"),
    "look": Operation(look, "heavy"),
    "layer": Operation(get_layer, "maps"),
    "look-page": Operation(render_maps, "maps"),
    "neuron": Operation(record_neurons, "heavy"),
    "neuron-row": Operation(get_neuron_row, "maps"),
    "step": Operation(step, "short"),
    "beams": Operation(search_beams, "heavy"),
    "ablate": Operation(ablate, "short"),
    "lens": Operation(logit_lens, "short"),
    "heads": Operation(measure_heads, "heavy"),
    "tokens": Operation(measure_tokens, "heavy"),
    "picture": Operation(inspect_image, "heavy"),
    "picture-page": Operation(render_image, "heavy"),
    "picture-map": Operation(get_image_map, "maps"),
    "fold": Operation(fold, "heavy"),
    "fold-attention": Operation(get_fold_attention, "maps"),
    "fold-page": Operation(render_fold, "maps"),
    "fold-pdb": Operation(format_fold, "maps"),
    "play": Operation(play, "heavy"),
    "frame": Operation(get_frame, "maps"),
    "masks": Operation(build_masks, "short"),
    "positions": Operation(view_positions, "short"),
    "run-positions": Operation(view_run_positions, "short"),
    "sentences": Operation(list_sentences, "short"),
    "tree": Operation(get_tree, "heavy"),
    "cost": Operation(get_cost, "heavy"),
}
