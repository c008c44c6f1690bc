"""All ways to decode the requests of several clients give the same tokens."""

import pytest

from headwise.bench.jobs import SHAPES, STACKS, ServeEngineJob
from headwise.bench.serve_engine import ENGINES, build_benchmark, draw_sources


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("shape", "beams"), [(STACKS["tiny"], 1), (SHAPES["tiny"], 1), (SHAPES["tiny"], 2)])
def test_all_engines_give_the_same_tokens(shape, beams, mixed):
    settings = {"shape": shape, "clients": 3, "rounds": 2, "prompt": 8, "length": 12, "beams": beams, "mixed": mixed}
    jobs = [ServeEngineJob(engine=engine, **settings) for engine in ENGINES]
    outputs = [build_benchmark(job)() for job in jobs]
    assert outputs[0] == outputs[1] == outputs[2]
    lengths = [len(source) for source in draw_sources(jobs[0])]
    assert [len(ids) for ids in outputs[0]] == [int(1.5 * length) for length in lengths]
    assert (len(set(lengths)) > 1) == mixed
