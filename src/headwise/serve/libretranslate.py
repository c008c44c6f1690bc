"""Two routes as LibreTranslate has them, so that its clients can be used: /translate and /languages."""

from __future__ import annotations

from headwise.serve.errors import RequestError
from headwise.serve.own_api import build_work, collect_outputs, list_texts
from headwise.serve.pool import ServedModel
from headwise.serve.routing import Answer, Call, EventStream, Route
from headwise.serve.schemas import LibreTranslateRequest


def list_translators(call: Call) -> list[ServedModel]:
    return [model for model in call.service.pool.models.values() if "translate" in model.info.get("verbs", ())]


async def translate(call: Call) -> Answer | EventStream:
    body: LibreTranslateRequest = call.body
    known = list_translators(call)
    fitting = [model for model in known if model.spec.languages[1] == body.target]
    if body.source != "auto":
        fitting = [model for model in fitting if model.spec.languages[0] == body.source]
    elif len({model.spec.languages[0] for model in fitting}) > 1:
        raise RequestError(400, "source: languages are not detected here; name one of /languages")
    if not fitting:
        pairs = ", ".join(" to ".join(model.spec.languages) for model in known) or "nothing"
        raise RequestError(400, f"source, target: this server translates {pairs}; see /languages")
    settings = {}
    if body.alternatives:
        beams = fitting[0].info["beams"]
        settings = {"beams": max(beams, body.alternatives + 1), "nbest": body.alternatives + 1}
    work = build_work(call, [{"text": text} for text in list_texts(body.q)], settings)
    rows = [[each["text"] for each in row["outputs"]] for row in await collect_outputs(call, fitting[0], work)]
    first, others = [row[0] for row in rows], [row[1:] for row in rows]
    single = isinstance(body.q, str)
    content = {"translatedText": first[0] if single else first}
    if body.alternatives:
        content["alternatives"] = others[0] if single else others
    return Answer(content)


async def list_languages(call: Call) -> Answer | EventStream:
    targets: dict[str, list[str]] = {}
    for model in list_translators(call):
        source, target = model.spec.languages
        targets.setdefault(source, []).append(target)
    return Answer([{"code": code, "name": code, "targets": found} for code, found in targets.items()])


ROUTES = [
    Route(
        "/translate", translate, "Translate texts, as LibreTranslate does.", "LibreTranslate", LibreTranslateRequest,
        {"q": "We are here.", "source": "en", "target": "de"}, {"translatedText": "Wir sind hier."}, forms=True,
        computes=True,
    ),
    Route("/languages", list_languages, "Languages, and what each can be translated to.", "LibreTranslate",
          answer=[{"code": "en", "name": "en", "targets": ["de"]}]),
]  # fmt: skip
