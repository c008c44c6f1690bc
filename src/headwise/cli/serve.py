"""`headwise serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, KeyFile, log_to_stderr, say
from headwise.errors import UserError
from headwise.utils.extras import needed_for

POSITIVE, PORT = validators.Number(gte=1), validators.Number(gte=0, lte=65535)


def serve(
    *runs: str,
    host: Annotated[str, Parameter(help="Address to listen on; any but localhost needs a key.")] = "127.0.0.1",
    port: Annotated[int, Parameter(validator=PORT, help="Port; 0: any free one.")] = 8000,
    key_file: KeyFile = None,
    no_key: Annotated[bool, Parameter(negative="", help="Let everybody in who reaches --host, without a key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        Parameter(negative="", help="A further Host header to accept without keys, such as api.example:443; *: any."),
    ] = None,
    engine: Annotated[
        Literal["native", "int8", "ctranslate2", "onnx"],
        Parameter(help="int8: 8-bit weights; ctranslate2, onnx: these libraries."),
    ] = "native",
    languages: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=SOURCE:TARGET, the languages of a translator, as in demo=en:de."),
    ] = None,
    chat_template: Annotated[
        Path | None, Parameter(help="A Jinja file to use as chat template; by default the one of the folder.")
    ] = None,
    queue: Annotated[
        int, Parameter(validator=POSITIVE, help="Requests of a model that may wait; others get 503.")
    ] = 128,
    rows: Annotated[
        int, Parameter(validator=POSITIVE, help="Samples and beams of a model that are written at once.")
    ] = 32,
    max_tokens: Annotated[int, Parameter(validator=POSITIVE, help="Most tokens of an output.")] = 1024,
    timeout: Annotated[
        float, Parameter(validator=validators.Number(gt=0), help="Most seconds that a request may take.")
    ] = 300.0,
    drain: Annotated[
        float, Parameter(validator=validators.Number(gte=0), help="Seconds for requests in flight after SIGTERM.")
    ] = 30.0,
    tls_cert: Annotated[Path | None, Parameter(help="PEM file of a certificate, to serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, Parameter(help="PEM file of its private key.")] = None,
    behind_proxy: Annotated[
        bool, Parameter(negative="", help="Believe X-Forwarded-For of a proxy on this machine.")
    ] = False,
    metrics_port: Annotated[
        int | None, Parameter(validator=PORT, help="Serve /metrics on this port of 127.0.0.1, too, without a key.")
    ] = None,
    spare: Annotated[
        bool, Parameter(help="Keep a process that can replace a worker at once; it takes some 250 MB.")
    ] = True,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Annotated[int, Parameter(help="Threads of torch in each worker; 0: torch's default.")] = 0,
) -> None:
    """Serve models over HTTP: OpenAI's and LibreTranslate's APIs, and /api/ for every task.

    Each model has a process of its own, which is started again when it dies. /health and /ready say whether the server
    lives and whether it takes requests; /metrics is for Prometheus; / is a page to try it, /openapi.json the
    description of all routes. SIGTERM lets requests in flight finish and ends with status 0.

    For example:

        headwise serve runs/shakespeare-gpt
        headwise serve runs/demo speller=runs/codespell --languages demo=letters:phonemes
        headwise serve ./smollm2 --engine int8 --port 9000
        HEADWISE_API_KEY=$(openssl rand -hex 24) headwise serve runs/demo --host 0.0.0.0
        headwise serve runs/demo --host 0.0.0.0 --key-file keys.txt --tls-cert cert.pem --tls-key key.pem

        curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
             -d '{"model": "shakespeare-gpt", "prompt": "To be", "max_tokens": 40}'

    A systemd unit (/etc/systemd/system/headwise.service):

        [Service]
        ExecStart=/opt/headwise/bin/headwise serve /srv/runs/demo --key-file ${CREDENTIALS_DIRECTORY}/keys
        LoadCredential=keys:/etc/headwise/keys
        DynamicUser=yes
        ProtectSystem=strict
        TimeoutStopSec=40
        Restart=on-failure

        [Install]
        WantedBy=multi-user.target

    A Dockerfile:

        FROM python:3.12-slim
        RUN pip install --no-cache-dir 'headwise[serve]' && useradd --create-home headwise
        USER headwise
        COPY runs/demo /srv/demo
        EXPOSE 8000
        CMD ["headwise", "serve", "/srv/demo", "--host", "0.0.0.0"]

    which is started with `docker run --env-file keys.env -p 127.0.0.1:8000:8000 IMAGE`.

    Parameters
    ----------
    runs
        Run folders, Hugging Face folders or GGUF files; NAME=RUN gives a name, which is otherwise that of the folder.
    """
    log_to_stderr()
    with needed_for("headwise serve"):
        import prometheus_client  # noqa: F401  (its extra has all that is needed)

        from headwise.serve.server import ServeConfig
        from headwise.serve.server import serve as run_service
    from headwise.serve.limits import ServeLimits
    from headwise.serve.naming import parse_specs
    from headwise.web.guard import Address
    from headwise.web.keys import read_keys

    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert, --tls-key: belong together; give both")
    specs = parse_specs(runs, languages or [], engine, checkpoint, device, threads, chat_template)
    address = Address(host, port, read_keys(key_file), tls_cert is not None, tuple(allow_host or ()), no_key)
    config = ServeConfig(
        specs,
        address,
        ServeLimits(queue, rows, max_tokens, timeout, drain),
        (tls_cert, tls_key) if tls_cert and tls_key else None,
        behind_proxy,
        metrics_port,
        spare,
    )
    run_service(config, say)
