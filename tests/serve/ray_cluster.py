"""The service on a local Ray cluster of two nodes, one of which is killed under load: `make test-ray`.

It is no part of `make test`: starting Ray, two nodes and their models takes longer than all other tests of the service.
"""

import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
from ray import serve
from ray.cluster_utils import Cluster

from headwise.serve.ray import Settings, app

PORT = 18_642
KEY = "0123456789abcdef-ray"
LONG = {"text": "to be", "max_tokens": 3000, "min_length": 3000, "temperature": 0}


def ask(path: str, body: object = None, key: str = KEY) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("GET" if body is None else "POST", path, content, headers)
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return found


@pytest.fixture(scope="module")
def cluster(runs):
    """A head with no processors of its own for models, and two nodes with one replica each."""
    os.environ["HEADWISE_API_KEY"] = KEY
    os.environ["RAY_DISABLE_METRICS_COLLECTION"] = "1"
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=nodes.address, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT, "location": "HeadOnly"})
    settings = Settings(runs=str(runs / "long"), max_tokens=3000, min_replicas=2, max_replicas=2)
    serve.run(app(settings), name="headwise", route_prefix="/")
    yield nodes, workers
    serve.shutdown()
    ray.shutdown()
    nodes.shutdown()


def test_the_service_survives_the_loss_of_a_node(cluster):
    nodes, workers = cluster
    assert ask("/api/generate", {"text": "to be", "max_tokens": 40, "temperature": 0})[0] == 200
    assert ask("/v1/models", key="wrong" * 4)[0] == 401 and ask("/health", key="x")[0] == 200
    assert ask("/v1/completions", {"model": "../long", "prompt": "a"})[0] == 404

    with ThreadPoolExecutor(24) as clients:
        streams = [clients.submit(ask, "/api/generate", LONG | {"stream": True}) for _ in range(8)]
        time.sleep(4)  # all streams have begun, on both nodes
        body = {"text": "to be", "max_tokens": 1500, "min_length": 1500, "temperature": 0}
        unary = [clients.submit(ask, "/api/generate", body) for _ in range(16)]
        time.sleep(1)
        nodes.remove_node(workers[1], allow_graceful=False)
        answers = [each.result() for each in unary]
        assert [status for status, _, _ in answers] == [200] * 16
        texts = {json.loads(content)["outputs"][0]["outputs"][0]["text"] for _, _, content in answers}
        assert len(texts) == 1  # those that were sent again say the same
        assert ask("/health")[0] == 200
        ends = [each.result()[2] for each in streams]
    broken = [content for content in ends if b'"error"' in content[-400:]]
    whole = [content for content in ends if content.endswith(b"data: [DONE]\n\n")]
    assert len(broken) + len(whole) == 8 and broken and whole
    assert all(b"was lost; send the request again" in content for content in broken)
    assert ask("/api/generate", {"text": "to be", "max_tokens": 40, "min_length": 40, "temperature": 0})[0] == 200
