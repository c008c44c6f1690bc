"""HTTPS, and the files that the manual gives to run the service: they are parsed, and their options exist."""

import configparser
import datetime
import inspect
import ipaddress
import json
import re
import shlex
import socket
import ssl
import stat
from pathlib import Path

import openai
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwise.cli.main import build_app
from headwise.cli.serve import serve as serve_command
from headwise.serve.limits import MAX_IMAGE_BODY, ServeLimits
from headwise.serve.pool import ModelPool
from headwise.serve.server import build_service

MANUAL = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
PAUSE = 5  # seconds of the manifest's preStop


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that it has signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwise test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, raw, serialization.NoEncryption()))
    (folder / "key.pem").chmod(stat.S_IRUSR)
    return folder / "cert.pem", folder / "key.pem"


def test_https_by_flags_with_the_client_of_openai(serve, runs, tmp_path):
    cert, key = write_certificate(tmp_path)
    with serve(str(runs / "lm"), "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        trusting = openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=str(cert)))
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, http_client=trusting) as client:
            whole = client.completions.create(model="lm", prompt="to be", max_tokens=6, temperature=0)
            pieces = client.completions.create(model="lm", prompt="to be", max_tokens=6, temperature=0, stream=True)
            assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as stranger:
            with pytest.raises(openai.APIConnectionError) as caught:
                stranger.models.list()
            assert "CERTIFICATE_VERIFY_FAILED" in repr(caught.value.__cause__)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" not in plain.recv(4096)  # nothing is answered without TLS


def find_block(language: str, marker: str) -> str:
    """The code block of the manual that has this text in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", MANUAL, re.DOTALL)
    (found,) = (block for block in blocks if marker in block)
    return found


def check_command(words: list[str]) -> dict[str, object]:
    """The settings that a command line of `headwise serve` gives; an option that does not exist is an error."""
    assert words[:2] == ["headwise", "serve"]
    _, bound, _ = build_app("serve").parse_args(words[1:], exit_on_error=False, print_error=False)
    return dict(bound.arguments)


def test_the_help_shows_the_unit_and_the_dockerfile_of_the_manual():
    shown = inspect.getdoc(serve_command) or ""
    for block in (find_block("ini", "[Service]"), find_block("dockerfile", "FROM")):
        assert all(line.strip() in shown for line in block.splitlines())


def test_the_systemd_unit_starts_the_service_and_waits_for_its_drain():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(find_block("ini", "[Service]"))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "headwise" and check_command(["headwise", *words])["key_file"]
    assert float(unit["Service"]["TimeoutStopSec"]) > ServeLimits().drain_seconds
    name, _, source = unit["Service"]["LoadCredential"].partition(":")
    assert f"${{CREDENTIALS_DIRECTORY}}/{name}" in unit["Service"]["ExecStart"] and Path(source).is_absolute()


def test_the_dockerfile_starts_the_service_without_root():
    lines = find_block("dockerfile", "FROM").strip().splitlines()
    steps = [line.split(" ", 1) for line in lines]
    (command,) = (json.loads(rest) for step, rest in steps if step == "CMD")
    assert check_command(command)["host"] == "0.0.0.0"
    assert [step for step, _ in steps].index("USER") < [step for step, _ in steps].index("CMD")


def test_the_manifest_probes_paths_that_need_no_key_and_outlasts_the_drain(runs):
    manifest = yaml.safe_load(find_block("yaml", "kind: Deployment"))
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (
        manifest["spec"]["selector"]["matchLabels"].items()
        <= manifest["spec"]["template"]["metadata"]["labels"].items()
    )
    assert check_command(container["args"])["threads"] == 2
    (port,) = container["ports"]
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"
    }  # fmt: skip
    service = build_service(ModelPool([], ServeLimits()), ServeLimits())
    for probe in probes.values():
        assert probe["path"] in service.by_path and probe["port"] == port["containerPort"] == 8000
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pause == PAUSE and pod["terminationGracePeriodSeconds"] >= pause + ServeLimits().drain_seconds
    assert container["env"][0]["name"] == "HEADWISE_API_KEY"


def test_the_nginx_configuration_lets_streams_and_images_through():
    block = find_block("nginx", "proxy_pass")
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert block.count("{") == block.count("}") and all(not line or line[-1] in "{};" for line in lines)
    settings = dict(
        line.rstrip(";").split(" ", 1)
        for line in lines
        if line.startswith(("proxy_", "client_")) and "_set_" not in line
    )
    assert settings["proxy_buffering"] == "off" and settings["proxy_http_version"] == "1.1"
    assert int(settings["client_max_body_size"].removesuffix("m")) * 2**20 >= MAX_IMAGE_BODY
    assert int(settings["proxy_read_timeout"].removesuffix("s")) >= ServeLimits().seconds
    (introduction,) = re.findall(r"nginx, with `(headwise serve [^`]*)`", MANUAL)
    assert check_command(introduction.split())["behind_proxy"] is True
